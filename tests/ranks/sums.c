/* Sums to the bit: in the order of the ranks, bf16 in fp32 and rounded once, the same on all. */
#include "base/rng.h"
#include "ranks.h"

enum { MOST = 8, N = 5000 };

/* Values of many sizes: no two orders of summing agree. */
static float wild(int32_t rank, int64_t i) {
  struct moe_rng_key key = moe_rng_key(7, "sums");
  uint64_t r = moe_rng_u64(key, (uint64_t)(rank * N + i));
  float f = (float)(int32_t)r * 0x1p-31f;
  return f * (float)(1 << (r >> 40) % 20);
}

static uint16_t rounded(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float widened(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static float a[N];
static uint16_t b[N], part[N];

static struct moe_group everyone(moe_ctx *ctx) {
  struct moe_world *world;
  struct moe_comm *all;
  int32_t ranks[MOST];
  MUST(ctx, moe_ctx_world(ctx, &world));
  for (int32_t i = 0; i < world->size; i++) ranks[i] = i;
  MUST(ctx, moe_comm_get(world, ranks, world->size, &all));
  return (struct moe_group){all, 0};
}

static void f32_in_order(moe_ctx *ctx, struct moe_group g, int64_t n) {
  int32_t size = moe_group_size(g), wrong = 0;
  for (int64_t i = 0; i < n; i++) a[i] = wild(moe_group_rank(g), i);
  MUST(ctx, moe_all_reduce(g, NULL, a, n, MOE_F32, MOE_SUM, NULL));
  for (int64_t i = 0; i < n; i++) {
    float sum = wild(0, i);
    for (int32_t m = 1; m < size; m++) sum += wild(m, i);
    wrong += memcmp(&sum, &a[i], sizeof sum) != 0;
  }
  CHECK(wrong == 0);
}

/* naive: what rounding after every addition would give, and must not. */
static uint16_t bf16_sum(int32_t size, int64_t i, uint16_t *naive) {
  float sum = widened(rounded(wild(0, i))), step = sum;
  for (int32_t m = 1; m < size; m++) {
    float x = widened(rounded(wild(m, i)));
    sum += x;
    step = widened(rounded(step + x));
  }
  *naive = rounded(step);
  return rounded(sum);
}

static void bf16_rounds_once(moe_ctx *ctx, struct moe_group g, int64_t n) {
  int32_t size = moe_group_size(g), me = moe_group_rank(g), wrong = 0, naive_right = 0;
  int64_t count[MOST], offset[MOST];
  for (int32_t m = 0; m < size; m++) {
    offset[m] = n * m / size;
    count[m] = n * (m + 1) / size - offset[m];
  }
  for (int64_t i = 0; i < n; i++) b[i] = rounded(wild(me, i));
  MUST(ctx, moe_reduce_scatter_v(g, NULL, b, part, count, offset, MOE_BF16, NULL));
  MUST(ctx, moe_all_reduce(g, NULL, b, n, MOE_BF16, MOE_SUM, NULL));
  for (int64_t i = 0; i < n; i++) {
    uint16_t naive, right = bf16_sum(size, i, &naive);
    wrong += b[i] != right;
    naive_right += naive == right;
  }
  for (int64_t i = 0; i < count[me]; i++) wrong += part[i] != b[offset[me] + i];
  CHECK(wrong == 0);
  if (size > 2 && n == N) CHECK(naive_right < n);
}

/* 256 + 1 + 1 + ... is 256 for ever where every step is rounded to bf16. */
static void ones(moe_ctx *ctx, struct moe_group g) {
  int32_t size = moe_group_size(g);
  uint16_t x = rounded(moe_group_rank(g) ? 1 : 256);
  MUST(ctx, moe_all_reduce(g, NULL, &x, 1, MOE_BF16, MOE_SUM, NULL));
  CHECK(x == rounded((float)(255 + size)));
}

/* What no number can be summed with stays visible. */
static void not_finite(moe_ctx *ctx, struct moe_group g) {
  uint16_t x = moe_group_rank(g) ? rounded(1) : 0x7f81; /* a NaN that adding a half would end */
  MUST(ctx, moe_all_reduce(g, NULL, &x, 1, MOE_BF16, MOE_SUM, NULL));
  CHECK((x & 0x7fff) > 0x7f80);
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  struct moe_group g = everyone(ctx);
  const int64_t sizes[] = {0, 1, 7, 100, N};
  for (size_t i = 0; i < MOE_COUNTOF(sizes); i++) {
    f32_in_order(ctx, g, sizes[i]);
    bf16_rounds_once(ctx, g, sizes[i]);
  }
  g.comm->world->piece_bytes = 1000;
  f32_in_order(ctx, g, N);
  bf16_rounds_once(ctx, g, N);
  ones(ctx, g);
  not_finite(ctx, g);
  return ranks_close(ctx);
}
