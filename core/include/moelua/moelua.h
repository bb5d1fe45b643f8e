/* MoELua: trains mixture-of-experts language models. Include this one. */
#ifndef MOELUA_MOELUA_H
#define MOELUA_MOELUA_H

#include "moelua/checkpoint.h"
#include "moelua/comm.h"
#include "moelua/config.h"
#include "moelua/ctx.h"
#include "moelua/data.h"
#include "moelua/mesh.h"
#include "moelua/prepare.h"
#include "moelua/status.h"
#include "moelua/tokenizer.h"
#include "moelua/train.h"

#endif
