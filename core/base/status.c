#include "moelua/status.h"

#include "base/base.h"
#include "moelua/ctx.h"

const char *moe_status_name(moe_status status) {
  switch (status) {
#define NAME(name, value, text) \
  case MOE_##name: return #name;
    MOE_STATUS_MAP(NAME)
#undef NAME
  }
  return "UNKNOWN";
}

const char *moe_status_text(moe_status status) {
  switch (status) {
#define TEXT(name, value, text) \
  case MOE_##name: return text;
    MOE_STATUS_MAP(TEXT)
#undef TEXT
  }
  return "unknown status";
}

const char *moe_version(void) { return MOE_VERSION; }
