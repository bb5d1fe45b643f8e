/* Learning-rate schedules: pure functions of the step. */
#ifndef MOE_OPTIM_LR_H
#define MOE_OPTIM_LR_H

#include "moelua/config.h"

/* The rate of the update that makes step `step` (1 for the first). */
double moe_lr_value(const moe_lr_config *lr, int64_t step);

#endif
