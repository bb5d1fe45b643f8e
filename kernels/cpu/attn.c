/* Causal attention, forward: online softmax over key tiles (Dao et al., "FlashAttention", 2022).
 *
 * A unit of work is one sequence, one kv head and up to UNIT tiles of TQ queries (several heads of
 * the group, or several query blocks where the group is small), which share the packed key and
 * value tiles. A tile's result depends on its own queries and the key tiles in ascending order
 * only: neither threads nor the batch change its bits. */
#include "kernels/cpu/attn_tile.h"

enum { UNIT = 8 };

struct forward {
  const struct moe_attn_args *a;
  struct attn_shape shape;
  int64_t heads, blocks; /* of a unit */
  int64_t head_sets, block_sets;
};

/* One tile of queries and its running softmax. */
struct tile {
  int64_t head, row, n; /* query head, first row inside the sequence, rows */
  uint32_t *qt;         /* (D units, TQ) */
  float *o;             /* (TQ, dp), not yet divided by sum */
  float max[ATTN_TQ], sum[ATTN_TQ];
  int32_t lo[ATTN_TQ], hi[ATTN_TQ];
};

struct space {
  struct tile tile[UNIT];
  uint32_t *k, *v, *rows;
  float *s;
  uint32_t *p; /* probabilities in units; s itself without pairs */
  float alpha[ATTN_TQ];
};

_Static_assert((4 + 2 * UNIT) * ATTN_TQ * ATTN_D_MAX * 4 + 3 * ATTN_TQ * ATTN_TK * 4 +
                       sizeof(struct space) + 4096 <=
                   MOE_CPU_WORKSPACE,
               "the forward pass fits a thread's workspace");

static struct space *space_of(const struct forward *f, char *at) {
  struct space *w = attn_take(&at, (int64_t)sizeof *w / 4 + 1);
  int64_t tile = ATTN_TQ * f->shape.dp;
  w->k = attn_take(&at, tile);
  w->v = attn_take(&at, tile);
  w->rows = attn_take(&at, tile);
  w->s = attn_take(&at, ATTN_TK * ATTN_TQ);
  w->p = f->shape.pairs ? attn_take(&at, ATTN_TK * ATTN_TQ / 2) : (uint32_t *)w->s;
  for (int i = 0; i < UNIT; i++) {
    w->tile[i].qt = attn_take(&at, tile);
    w->tile[i].o = attn_take(&at, tile);
  }
  return w;
}

static void start(const struct forward *f, struct space *w, struct tile *t, int64_t b) {
  const struct moe_attn_args *a = f->a;
  struct attn_source q = {&a->q,   b * a->sq + t->row,    t->n,
                          ATTN_TQ, t->head * a->head_dim, a->head_dim};
  MOE_FN(attn_pack_rows)(f->shape.pairs, w->rows, f->shape.ld_row, &q);
  MOE_FN(attn_transpose)(t->qt, w->rows, f->shape.ld_row, f->shape.ld_row);
  memset(t->o, 0, (size_t)(ATTN_TQ * f->shape.dp) * 4);
  MOE_FN(attn_ranges)(a, t->row, t->n, t->lo, t->hi);
  for (int64_t i = 0; i < ATTN_TQ; i++) {
    t->max[i] = -INFINITY;
    t->sum[i] = 0;
    if (i >= t->n) {
      t->lo[i] = t->lo[t->n - 1];
      t->hi[i] = t->hi[t->n - 1];
    }
  }
}

/* Scales and masks the scores of one vector of queries, rows [begin, end); returns their maximum
 * with `max`. */
static inline vf mask_scores(float *s, struct attn_span span, const int32_t *lo, const int32_t *hi,
                             int64_t k0, vf scale, vf max) {
  if (span.full) {
    for (int64_t r = span.begin; r < span.end; r++) {
      vf x = vf_load(s + r * ATTN_TQ) * scale;
      vf_store(s + r * ATTN_TQ, x);
      max = attn_max(max, x);
    }
    return max;
  }
  const vi none = (vi)vf_set(-INFINITY);
  for (int64_t r = span.begin; r < span.end; r++) {
    vi seen = attn_seen(lo, hi, k0 + r);
    vf x = vf_load(s + r * ATTN_TQ) * scale;
    x = (vf)(((vi)x & seen) | (none & ~seen));
    vf_store(s + r * ATTN_TQ, x);
    max = attn_max(max, x);
  }
  return max;
}

/* Probabilities of one vector of queries relative to its new maximum. */
static void softmax(struct space *w, struct tile *t, struct attn_span span, int64_t col, int64_t k0,
                    float scale) {
  float *s = w->s + col;
  vf old = vf_load(t->max + col);
  vf max = mask_scores(s, span, t->lo + col, t->hi + col, k0, vf_set(scale), old);
  vi none = max == vf_set(-INFINITY);
  vf base = (vf)((vi)max & ~none); /* 0 while a query has seen nothing */
  vf alpha = attn_exp(old - base), sum = vf_load(t->sum + col) * alpha;
  bool pairs = (float *)w->p != w->s;
  for (int64_t r = span.begin; r < span.end; r += 2) {
    vf x = attn_exp(vf_load(s + r * ATTN_TQ) - base);
    vf y = attn_exp(vf_load(s + (r + 1) * ATTN_TQ) - base);
    sum += x + y;
    if (pairs) {
      vu u = attn_pair(x, y);
      memcpy(w->p + r / 2 * ATTN_TQ + col, &u, sizeof u);
    } else {
      vf_store(s + r * ATTN_TQ, x);
      vf_store(s + (r + 1) * ATTN_TQ, y);
    }
  }
  vf_store(t->max + col, max);
  vf_store(t->sum + col, sum);
  vf_store(w->alpha + col, alpha);
}

/* One tile of queries against the packed key tile at k0. */
static void step(const struct forward *f, struct space *w, struct tile *t, int64_t k0) {
  int64_t per = f->shape.per;
  for (int64_t col = 0; col < ATTN_TQ; col += ATTN_NR) {
    struct attn_span span = attn_span_of(t->lo, t->hi, col, k0);
    if (span.begin >= span.end) continue;
    struct attn_product scores = {.pairs = f->shape.pairs,
                                  .m = span.end - span.begin,
                                  .nv = 2,
                                  .k = f->shape.units,
                                  .a = w->k + span.begin * f->shape.ld_row,
                                  .a_row = f->shape.ld_row,
                                  .a_k = 1,
                                  .b = t->qt + col,
                                  .ldb = ATTN_TQ,
                                  .c = w->s + span.begin * ATTN_TQ + col,
                                  .ldc = ATTN_TQ};
    MOE_FN(attn_product)(&scores);
    softmax(w, t, span, col, k0, f->a->scale);
    softmax(w, t, span, col + MOE_VW, k0, f->a->scale);
    struct attn_product out = {.pairs = f->shape.pairs,
                               .m = ATTN_NR,
                               .nv = f->shape.nv,
                               .k = (span.end - span.begin) / per,
                               .a = w->p + span.begin / per * ATTN_TQ + col,
                               .a_row = 1,
                               .a_k = ATTN_TQ,
                               .b = w->v + span.begin / per * f->shape.dp,
                               .ldb = f->shape.dp,
                               .c = t->o + col * f->shape.dp,
                               .ldc = f->shape.dp,
                               .add = true,
                               .row_scale = w->alpha + col};
    MOE_FN(attn_product)(&out);
  }
}

static void finish(const struct forward *f, const struct tile *t, int64_t b) {
  const struct moe_attn_args *a = f->a;
  int64_t d_end = a->head_dim;
  for (int64_t i = 0; i < t->n; i++) {
    char *out = mat_row(&a->o, b * a->sq + t->row + i);
    float sum = t->sum[i];
    vf inverse = vf_set(sum == 0 ? 0.0f : 1.0f / sum);
    for (int64_t d = 0; d < d_end; d += MOE_VW) {
      vf x = vf_load(t->o + i * f->shape.dp + d) * inverse;
      int64_t at = t->head * d_end + d;
      if (d + MOE_VW <= d_end)
        vx_store(out, a->o.dtype, at, x);
      else
        vx_store_n(out, a->o.dtype, at, x, d_end - d);
    }
    if (a->lse)
      a->lse[(b * a->heads + t->head) * a->sq + t->row + i] =
          sum == 0 ? -INFINITY : t->max[i] + logf(sum);
  }
}

static void pack_keys(const struct forward *f, struct space *w, int64_t b, int64_t g, int64_t k0) {
  const struct moe_attn_args *a = f->a;
  struct attn_source k = {&a->k,   b * a->sk + k0,  moe_min64(ATTN_TK, a->sk - k0),
                          ATTN_TK, g * a->head_dim, a->head_dim};
  struct attn_source v = k;
  v.mat = &a->v;
  MOE_FN(attn_pack_rows)(f->shape.pairs, w->k, f->shape.ld_row, &k);
  if (f->shape.pairs)
    MOE_FN(attn_pack_interleave)(w->v, f->shape.dp, &v);
  else
    MOE_FN(attn_pack_rows)(false, w->v, f->shape.dp, &v);
}

/* Units of the same keys follow each other, last query blocks first: those see the most keys. */
static void unit(const struct forward *f, int64_t index, char *workspace) {
  const struct moe_attn_args *a = f->a;
  int64_t group = a->heads / a->kv_heads;
  int64_t block = (f->block_sets - 1 - index % f->block_sets) * f->blocks;
  index /= f->block_sets;
  int64_t head_set = index % f->head_sets, g = index / f->head_sets % a->kv_heads;
  int64_t b = index / f->head_sets / a->kv_heads;
  struct space *w = space_of(f, workspace);
  int64_t tiles = 0, first = a->sk, last = 0;
  for (int64_t i = 0; i < f->blocks && (block + i) * ATTN_TQ < a->sq; i++)
    for (int64_t h = head_set * f->heads; h < moe_min64((head_set + 1) * f->heads, group); h++) {
      struct tile *t = &w->tile[tiles++];
      t->head = g * group + h;
      t->row = (block + i) * ATTN_TQ;
      t->n = moe_min64(ATTN_TQ, a->sq - t->row);
      start(f, w, t, b);
      first = moe_min64(first, t->lo[0]);
      last = moe_max64(last, t->hi[ATTN_TQ - 1]);
    }
  for (int64_t k0 = first / ATTN_TK * ATTN_TK; k0 < last; k0 += ATTN_TK) {
    pack_keys(f, w, b, g, k0);
    for (int64_t i = 0; i < tiles; i++) step(f, w, &w->tile[i], k0);
  }
  for (int64_t i = 0; i < tiles; i++) finish(f, &w->tile[i], b);
}

struct job {
  struct forward f;
  const struct moe_stream *s;
};

static void units(void *arg, int64_t first, int64_t last, int32_t thread) {
  const struct job *job = arg;
  for (int64_t i = first; i < last; i++) unit(&job->f, i, moe_cpu_workspace(job->s, thread));
}

void MOE_FN(attn)(struct moe_stream *s, const struct moe_attn_args *a) {
  if (a->batch <= 0 || a->sq <= 0) return;
  struct job job = {.f = {.a = a, .shape = attn_shape_of(attn_pairs(s, a), a->head_dim)}, .s = s};
  struct forward *f = &job.f;
  int64_t group = a->heads / a->kv_heads, q_blocks = moe_div_up(a->sq, ATTN_TQ);
  f->heads = moe_min64(group, UNIT);
  f->blocks = UNIT / f->heads;
  f->head_sets = moe_div_up(group, f->heads);
  f->block_sets = moe_div_up(q_blocks, f->blocks);
  moe_cpu_for(s, f->block_sets * a->batch * a->kv_heads * f->head_sets, 1, units, &job);
}
