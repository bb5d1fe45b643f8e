/* Which blocks of the model a virtual stage of the pipeline holds. */
#ifndef MOE_PIPE_STAGES_H
#define MOE_PIPE_STAGES_H

#include "moelua/config.h"

/* Blocks [first, first + count) of the model. */
struct moe_stage {
  int32_t first, count;
};

/* Virtual stage `stage` of pp * chunks: by the layout's list, else evenly; where that is not whole,
 * the earlier stages have one more. Stages follow each other without a gap. */
struct moe_stage moe_stage_of(const moe_layout_config *layout, int32_t blocks, int32_t stages,
                              int32_t stage);

#endif
