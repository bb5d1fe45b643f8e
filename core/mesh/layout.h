/* A layout: the sizes and strides of both views' axes over the ranks of the world.
 * Invariant of a resolved layout: tp*cp*dp = etp*ep*edp, and the pp groups of both views are the
 * same, so a pipeline stage is one set of ranks in either view. */
#ifndef MOE_MESH_LAYOUT_H
#define MOE_MESH_LAYOUT_H

#include "base/base.h"
#include "base/text.h"
#include "moelua/config.h"

#define MOE_ORDER_DEFAULT "tp-cp-ep-dp-pp"

/* Axes by their name in the order string. In the MoE view tp is etp and dp is edp. */
enum moe_axis { MOE_AXIS_TP, MOE_AXIS_CP, MOE_AXIS_EP, MOE_AXIS_DP, MOE_AXIS_PP, MOE_AXES };
enum moe_view { MOE_VIEW_ATTN, MOE_VIEW_MOE, MOE_VIEWS };

struct moe_layout {
  int32_t world, chunks;
  int32_t order[MOE_AXES]; /* enum moe_axis, leftmost (stride 1) first; absent ones last */
  /* rank = sum over a view's axes of index * stride. ep has size 1 in the attention view, cp in
   * the MoE view. */
  int32_t size[MOE_VIEWS][MOE_AXES];
  int32_t stride[MOE_VIEWS][MOE_AXES];
};

/* The axis' name in a view: "tp" or "etp". */
const char *moe_axis_name(enum moe_view view, enum moe_axis axis);

/* Fills in the degrees that are 0 and checks the layout against world ranks; world 0: the fewest
 * ranks the degrees allow. Every error becomes a line "layout.field: text" of errors; false when
 * there is one. Then the degrees that are in range are set all the same (dp and edp at least 1), so
 * that a caller can go on checking, but strides are not. */
bool moe_layout_resolve(const moe_layout_config *config, int32_t world, struct moe_layout *out,
                        struct moe_text *errors);
/* For a caller that needs a legal layout: MOE_INVALID, with those lines as the error's text. */
moe_status moe_layout_make(moe_ctx *ctx, const moe_layout_config *config, int32_t world,
                           struct moe_layout *out);

#endif
