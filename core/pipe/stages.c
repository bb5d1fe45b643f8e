#include "pipe/stages.h"

struct moe_stage moe_stage_of(const moe_layout_config *layout, int32_t blocks, int32_t stages,
                              int32_t stage) {
  struct moe_stage s = {0, 0};
  if (layout->n_blocks > 0) {
    for (int32_t i = 0; i < stage; i++) s.first += layout->blocks[i];
    s.count = layout->blocks[stage];
    return s;
  }
  int32_t each = blocks / stages, rest = blocks % stages;
  s.first = stage * each + (stage < rest ? stage : rest);
  s.count = each + (stage < rest);
  return s;
}
