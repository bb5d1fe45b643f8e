#include "mesh/layout.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEGREE = 1 << 20, MAX_ORDER = 64 };

static const char *const names[MOE_VIEWS][MOE_AXES] = {{"tp", "cp", "ep", "dp", "pp"},
                                                       {"etp", "cp", "ep", "edp", "pp"}};

const char *moe_axis_name(enum moe_view view, enum moe_axis axis) { return names[view][axis]; }

static int64_t mul(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

static int64_t lcm(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t r = x % y;
    x = y, y = r;
  }
  return mul(a / x, b);
}

/* ---- the order string ---- */

static int axis_of(const char *word, size_t n) {
  for (int axis = 0; axis < MOE_AXES; axis++)
    if (strlen(names[MOE_VIEW_ATTN][axis]) == n && !memcmp(names[MOE_VIEW_ATTN][axis], word, n))
      return axis;
  return -1;
}

static void unknown_axis(struct moe_text *errors, const char *order, const char *word, int n) {
  const char *hint = "axes are tp cp ep dp pp";
  if (n == 3 && !strncmp(word, "etp", 3)) hint = "etp takes the place of tp";
  if (n == 3 && !strncmp(word, "edp", 3)) hint = "edp takes the place of dp";
  moe_text_line(errors, "layout.order: unknown axis \"%.*s\" in \"%s\"; %s", n, word, order, hint);
}

/* Sets out->order and present; whole words between single dashes. */
static bool parse_order(const char *order, struct moe_layout *out, bool present[MOE_AXES],
                        struct moe_text *errors) {
  int count = 0;
  bool ok = true;
  if (strlen(order) > MAX_ORDER) {
    moe_text_line(errors, "layout.order: %zu characters are too many; e.g. \"%s\"", strlen(order),
                  MOE_ORDER_DEFAULT);
    return false;
  }
  for (const char *word = order; word != NULL;) {
    size_t n = strcspn(word, "-");
    int axis = axis_of(word, n);
    if (axis < 0) {
      unknown_axis(errors, order, word, (int)n);
      ok = false;
    } else if (present[axis]) {
      moe_text_line(errors, "layout.order: \"%s\" names %s twice", order, names[0][axis]);
      ok = false;
    } else {
      present[axis] = true;
      out->order[count++] = axis;
    }
    word = word[n] ? word + n + 1 : NULL;
  }
  for (int axis = 0; ok && axis < MOE_AXES; axis++)
    if (!present[axis]) out->order[count++] = axis;
  return ok;
}

/* ---- degrees ---- */

/* The degree the user wrote, or fallback for 0. */
static bool degree(const char *name, int32_t value, int32_t fallback, int32_t *out,
                   struct moe_text *errors) {
  *out = value ? value : fallback;
  if (value >= 0 && value <= MAX_DEGREE) return true;
  moe_text_line(errors, "layout.%s: %d is outside 1 .. %d (0: follows from the others)", name,
                value, MAX_DEGREE);
  *out = fallback;
  return false;
}

static bool read_degrees(const moe_layout_config *config, struct moe_layout *out, int32_t *dp,
                         int32_t *edp, struct moe_text *errors) {
  int32_t *attn = out->size[MOE_VIEW_ATTN], *moe = out->size[MOE_VIEW_MOE];
  bool ok = degree("tp", config->tp, 1, &attn[MOE_AXIS_TP], errors);
  ok &= degree("cp", config->cp, 1, &attn[MOE_AXIS_CP], errors);
  ok &= degree("pp", config->pp, 1, &attn[MOE_AXIS_PP], errors);
  ok &= degree("etp", config->etp, attn[MOE_AXIS_TP], &moe[MOE_AXIS_TP], errors);
  ok &= degree("ep", config->ep, 1, &moe[MOE_AXIS_EP], errors);
  ok &= degree("dp", config->dp, 0, dp, errors);
  ok &= degree("edp", config->edp, 0, edp, errors);
  attn[MOE_AXIS_EP] = moe[MOE_AXIS_CP] = 1;
  moe[MOE_AXIS_PP] = attn[MOE_AXIS_PP];
  attn[MOE_AXIS_DP] = *dp ? *dp : 1;
  moe[MOE_AXIS_DP] = *edp ? *edp : 1;
  return ok;
}

/* Product of a view's sizes without its dp. */
static int64_t inner(const int32_t size[MOE_AXES]) {
  return mul(mul(mul(size[MOE_AXIS_TP], size[MOE_AXIS_CP]), size[MOE_AXIS_EP]), size[MOE_AXIS_PP]);
}

/* "tp 2 * cp 2 * pp 2": the axes a view has beside dp. */
static void product_text(char *out, size_t bytes, enum moe_view view,
                         const int32_t size[MOE_AXES]) {
  int second = view == MOE_VIEW_ATTN ? MOE_AXIS_CP : MOE_AXIS_EP;
  snprintf(out, bytes, "%s %d * %s %d * pp %d", names[view][MOE_AXIS_TP], size[MOE_AXIS_TP],
           names[view][second], size[second], size[MOE_AXIS_PP]);
}

/* Fewest ranks the degrees allow. */
static int64_t least_world(const struct moe_layout *layout, int32_t dp, int32_t edp) {
  int64_t attn = inner(layout->size[MOE_VIEW_ATTN]), moe = inner(layout->size[MOE_VIEW_MOE]);
  if (dp) return mul(attn, dp);
  if (edp) return mul(moe, edp);
  return lcm(attn, moe);
}

/* For each axis of the product larger than 1: the values it may take with the others as they are.
 */
static void valid_degrees(struct moe_text *errors, enum moe_view view, const int32_t size[MOE_AXES],
                          int32_t world) {
  for (int axis = 0; axis < MOE_AXES; axis++) {
    int64_t others = inner(size) / size[axis];
    if (axis == MOE_AXIS_DP || size[axis] == 1 || world % others) continue;
    moe_text_add(errors, ", or %s: ", names[view][axis]);
    moe_text_divisors(errors, world / others, size[axis]);
  }
}

static void wrong_world(struct moe_text *errors, enum moe_view view, const int32_t size[MOE_AXES],
                        int32_t world) {
  char text[96];
  product_text(text, sizeof text, view, size);
  moe_text_line(errors, "layout: %d ranks are not a multiple of %s = %lld; ranks: ", world, text,
                (long long)inner(size));
  moe_text_multiples(errors, inner(size), world);
  valid_degrees(errors, view, size, world);
}

static void wrong_dp(struct moe_text *errors, enum moe_view view, const int32_t size[MOE_AXES],
                     int32_t world, int32_t wanted) {
  const char *dp = names[view][MOE_AXIS_DP];
  char text[96];
  product_text(text, sizeof text, view, size);
  moe_text_line(errors, "layout.%s: %d, but %d ranks / (%s) = %d; leave %s out or use %d ranks", dp,
                wanted, world, text, size[MOE_AXIS_DP], dp,
                (int)moe_min64(mul(inner(size), wanted), INT32_MAX));
}

/* dp of a view from the world, compared with what the user wrote (0: nothing). */
static bool solve_view(struct moe_layout *layout, enum moe_view view, int32_t wanted,
                       struct moe_text *errors) {
  int32_t *size = layout->size[view], world = layout->world;
  int64_t product = inner(size);
  if (world % product) {
    wrong_world(errors, view, size, world);
    return false;
  }
  size[MOE_AXIS_DP] = (int32_t)(world / product);
  if (!wanted || wanted == size[MOE_AXIS_DP]) return true;
  wrong_dp(errors, view, size, world, wanted);
  return false;
}

/* ---- both together ---- */

/* A pp group is {r, r + stride, ..}: equal strides are equal groups. */
static bool same_stages(const struct moe_layout *layout, const char *order,
                        struct moe_text *errors) {
  const int32_t *attn = layout->size[MOE_VIEW_ATTN], *moe = layout->size[MOE_VIEW_MOE];
  int32_t a = layout->stride[MOE_VIEW_ATTN][MOE_AXIS_PP];
  int32_t m = layout->stride[MOE_VIEW_MOE][MOE_AXIS_PP];
  if (attn[MOE_AXIS_PP] == 1 || a == m) return true;
  moe_text_line(errors,
                "layout.order: \"%s\" has %d ranks left of pp in the attention view and %d in the "
                "MoE view (dp %d, edp %d), so their stages differ; put pp last, or make the two "
                "numbers equal",
                order, a, m, attn[MOE_AXIS_DP], moe[MOE_AXIS_DP]);
  return false;
}

static bool order_is_complete(const struct moe_layout *layout, const bool present[MOE_AXES],
                              const char *order, struct moe_text *errors) {
  bool ok = true;
  for (int axis = 0; axis < MOE_AXES; axis++)
    for (int view = 0; view < MOE_VIEWS; view++) {
      int32_t size = layout->size[view][axis];
      if (present[axis] || size == 1) continue;
      moe_text_line(errors, "layout.order: \"%s\" lacks %s, but %s is %d; e.g. \"%s\"", order,
                    names[MOE_VIEW_ATTN][axis], names[view][axis], size, MOE_ORDER_DEFAULT);
      ok = false;
      break;
    }
  return ok;
}

static void set_strides(struct moe_layout *layout) {
  for (int view = 0; view < MOE_VIEWS; view++) {
    int32_t stride = 1;
    for (int i = 0; i < MOE_AXES; i++) {
      int32_t axis = layout->order[i];
      layout->stride[view][axis] = stride;
      stride *= layout->size[view][axis];
    }
  }
}

bool moe_layout_resolve(const moe_layout_config *config, int32_t world, struct moe_layout *out,
                        struct moe_text *errors) {
  const char *order = config->order ? config->order : MOE_ORDER_DEFAULT;
  bool present[MOE_AXES] = {false};
  int32_t dp, edp;
  *out = (struct moe_layout){.chunks = config->chunks > 1 ? config->chunks : 1};
  bool ordered = parse_order(order, out, present, errors);
  bool ok = read_degrees(config, out, &dp, &edp, errors) && ordered;
  if (config->chunks < 0 || config->chunks > MAX_DEGREE) {
    moe_text_line(errors, "layout.chunks: %d is outside 1 .. %d", config->chunks, MAX_DEGREE);
    out->chunks = 1;
    ok = false;
  }
  if (world < 0) {
    moe_text_line(errors, "layout: %d ranks; there must be at least one", world);
    return false;
  }
  int64_t least = least_world(out, dp, edp);
  if (world == 0 && least > INT32_MAX) {
    moe_text_line(errors, "layout: the degrees need more than %d ranks", INT32_MAX);
    return false;
  }
  out->world = world ? world : (int32_t)least;
  bool attn = solve_view(out, MOE_VIEW_ATTN, dp, errors);
  bool moe = solve_view(out, MOE_VIEW_MOE, edp, errors);
  if (ordered && attn && moe) ok &= order_is_complete(out, present, order, errors);
  if (!ok || !attn || !moe) return false;
  set_strides(out);
  return same_stages(out, order, errors);
}

moe_status moe_layout_make(moe_ctx *ctx, const moe_layout_config *config, int32_t world,
                           struct moe_layout *out) {
  struct moe_text errors;
  moe_status status = MOE_OK;
  moe_text_init(ctx, &errors);
  if (!moe_layout_resolve(config, world, out, &errors))
    status = errors.failed ? MOE_MEMORY : moe_fail(ctx, MOE_INVALID, "%s", errors.s);
  moe_text_destroy(&errors);
  return status;
}
