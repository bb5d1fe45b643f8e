/* Causal attention, backward. With P = exp(S scale - lse) and delta = rowsum(dO * O):
 *   dV = P^T dO    dP = dO V^T    dS = P (dP - delta)    dQ = scale dS K    dK = scale dS^T Q
 * S and dP are computed again per tile and never stored whole.
 *
 * A task owns the CHUNK keys it reads of one sequence and kv head: it keeps them packed, adds up
 * their dK and dV over the heads of the group and the query tiles in order, and writes them once.
 * dQ of a tile is complete when the keys are one chunk; else every chunk's share goes to one of
 * SLOTS fp32 copies of dQ in the scratch, chunk c to slot c % SLOTS, and the slots are added in
 * order. Neither threads nor the batch change the bits. */
#include "kernels/cpu/attn_tile.h"

enum { CHUNK = 512, SLOTS = 4 };

struct backward {
  const struct moe_attn_bwd_args *args;
  const struct moe_attn_args *a;
  const struct moe_stream *s;
  struct attn_shape shape;
  int64_t chunks, slots, pass; /* pass: first chunk of this round */
  const int32_t *lo, *hi;      /* (Sq) */
  float *slot;                 /* (slots, B*Sq, A*D); NULL: one chunk */
};

struct space {
  /* of the chunk, rows of keys */
  uint32_t *k_rows, *v_rows; /* for S^T = K Q^T and dP^T = V dO^T */
  uint32_t *k_sum;           /* for dQ = dS K: interleaved with pairs, else k_rows itself */
  float *dk, *dv;            /* (CHUNK, dp) */
  /* of the query tile */
  uint32_t *rows;           /* (TQ, D units), on the way; NULL without pairs */
  uint32_t *qt, *dot;       /* (D units, TQ): transposed Q and dO */
  uint32_t *q_sum, *do_sum; /* (TQ units, dp): Q and dO as summed over queries */
  float *dq;                /* (TQ, dp) */
  float lse[ATTN_TQ], delta[ATTN_TQ];
  int32_t lo[ATTN_TQ], hi[ATTN_TQ];
  /* of the tile pair */
  float *s, *ds;                /* (TK, TQ) */
  uint32_t *p_units, *ds_units; /* (TK, TQ units): P^T, dS^T as summed over queries */
  uint32_t *ds_keys;            /* (TK units, TQ): dS^T as summed over keys */
};

_Static_assert((5 * CHUNK + 6 * ATTN_TQ) * ATTN_D_MAX * 4 + 4 * ATTN_TQ * ATTN_TK * 4 + 8192 <=
                   MOE_CPU_WORKSPACE,
               "the backward pass fits a thread's workspace");

static struct space *space_of(const struct backward *f, char *at) {
  struct space *w = attn_take(&at, (int64_t)sizeof(struct space) / 4 + 1);
  int64_t per = f->shape.per, tile = ATTN_TQ * ATTN_TK;
  w->k_rows = attn_take(&at, CHUNK * f->shape.ld_row);
  w->v_rows = attn_take(&at, CHUNK * f->shape.ld_row);
  w->k_sum = f->shape.pairs ? attn_take(&at, CHUNK / 2 * f->shape.dp) : w->k_rows;
  w->dk = attn_take(&at, CHUNK * f->shape.dp);
  w->dv = attn_take(&at, CHUNK * f->shape.dp);
  w->qt = attn_take(&at, ATTN_TQ * f->shape.ld_row);
  w->dot = attn_take(&at, ATTN_TQ * f->shape.ld_row);
  w->rows = f->shape.pairs ? attn_take(&at, ATTN_TQ * f->shape.ld_row) : NULL;
  w->q_sum = attn_take(&at, ATTN_TQ / per * f->shape.dp);
  w->do_sum = attn_take(&at, ATTN_TQ / per * f->shape.dp);
  w->dq = attn_take(&at, ATTN_TQ * f->shape.dp);
  w->s = attn_take(&at, tile);
  w->ds = attn_take(&at, tile);
  w->p_units = f->shape.pairs ? attn_take(&at, tile / 2) : (uint32_t *)w->s;
  w->ds_units = f->shape.pairs ? attn_take(&at, tile / 2) : (uint32_t *)w->ds;
  w->ds_keys = f->shape.pairs ? attn_take(&at, tile / 2) : (uint32_t *)w->ds;
  return w;
}

static void pack_chunk(const struct backward *f, struct space *w, int64_t b, int64_t g,
                       int64_t first, int64_t n) {
  const struct moe_attn_args *a = f->a;
  int64_t n_pad = (int64_t)moe_round_up((size_t)n, ATTN_TK);
  struct attn_source k = {&a->k, b * a->sk + first, n, n_pad, g * a->head_dim, a->head_dim};
  struct attn_source v = k;
  v.mat = &a->v;
  MOE_FN(attn_pack_rows)(f->shape.pairs, w->k_rows, f->shape.ld_row, &k);
  MOE_FN(attn_pack_rows)(f->shape.pairs, w->v_rows, f->shape.ld_row, &v);
  if (f->shape.pairs) MOE_FN(attn_pack_interleave)(w->k_sum, f->shape.dp, &k);
  memset(w->dk, 0, (size_t)(n_pad * f->shape.dp) * 4);
  memset(w->dv, 0, (size_t)(n_pad * f->shape.dp) * 4);
}

/* sum of x * y over d elements from element `at`. */
static float dot(const void *x, moe_dtype x_type, const void *y, moe_dtype y_type, int64_t at,
                 int64_t d) {
  vf sum = {0};
  int64_t i = 0;
  for (; i + MOE_VW <= d; i += MOE_VW)
    sum += vx_load(x, x_type, at + i) * vx_load(y, y_type, at + i);
  if (i < d) sum += vx_load_n(x, x_type, at + i, d - i) * vx_load_n(y, y_type, at + i, d - i);
  return vf_sum(sum);
}

/* A tile transposed, and as an operand summed over its rows. */
static void pack_both(const struct attn_shape *shape, uint32_t *rows, uint32_t *transposed,
                      uint32_t *sum, const struct attn_source *src) {
  if (shape->pairs)
    MOE_FN(attn_pack_interleave)(sum, shape->dp, src);
  else
    rows = sum;
  MOE_FN(attn_pack_rows)(shape->pairs, rows, shape->ld_row, src);
  MOE_FN(attn_transpose)(transposed, rows, shape->ld_row, shape->ld_row);
}

static void pack_queries(const struct backward *f, struct space *w, int64_t b, int64_t head,
                         int64_t row, int64_t n) {
  const struct moe_attn_args *a = f->a;
  int64_t d = a->head_dim;
  struct attn_source q = {&a->q, b * a->sq + row, n, ATTN_TQ, head * d, d}, d_o = q;
  d_o.mat = &f->args->d_o;
  pack_both(&f->shape, w->rows, w->qt, w->q_sum, &q);
  pack_both(&f->shape, w->rows, w->dot, w->do_sum, &d_o);
  memset(w->dq, 0, (size_t)(ATTN_TQ * f->shape.dp) * 4);
  const float *lse = a->lse + (b * a->heads + head) * a->sq + row;
  for (int64_t i = 0; i < ATTN_TQ; i++) {
    int64_t j = moe_min64(i, n - 1), r = b * a->sq + row + j;
    w->lo[i] = f->lo[row + j];
    w->hi[i] = f->hi[row + j];
    /* +INFINITY makes P = 0: rows that see nothing and rows past the end. */
    bool none = i >= n || lse[j] == -INFINITY;
    w->lse[i] = none ? INFINITY : lse[j];
    w->delta[i] = none ? 0
                       : dot(mat_row(&f->args->d_o, r), f->args->d_o.dtype, mat_row(&a->o, r),
                             a->o.dtype, head * d, d);
  }
}

/* P^T and dS^T of one vector of queries from S^T and dP^T, rows of the span. */
static void gradients(const struct backward *f, struct space *w, struct attn_span span, int64_t col,
                      int64_t k0) {
  const vf lse = vf_load(w->lse + col), delta = vf_load(w->delta + col);
  const vf scale = vf_set(f->a->scale);
  for (int64_t r = span.begin; r < span.end; r += 2) {
    vf p[2], ds[2];
    for (int j = 0; j < 2; j++) {
      float *s = w->s + (r + j) * ATTN_TQ + col, *g = w->ds + (r + j) * ATTN_TQ + col;
      p[j] = attn_exp(vf_load(s) * scale - lse);
      ds[j] = p[j] * (vf_load(g) - delta);
      if (!span.full) {
        vi seen = attn_seen(w->lo + col, w->hi + col, k0 + r + j);
        p[j] = (vf)((vi)p[j] & seen);
        ds[j] = (vf)((vi)ds[j] & seen);
      }
      if (f->shape.pairs) {
        vx_store(w->p_units, MOE_BF16, (r + j) * ATTN_TQ + col, p[j]);
        vx_store(w->ds_units, MOE_BF16, (r + j) * ATTN_TQ + col, ds[j]);
      } else {
        vf_store(s, p[j]);
        vf_store(g, ds[j]);
      }
    }
    if (f->shape.pairs) {
      vu u = attn_pair(ds[0], ds[1]);
      memcpy(w->ds_keys + r / 2 * ATTN_TQ + col, &u, sizeof u);
    }
  }
}

/* dV and dK of the keys [first, last) of the tile at chunk row `base` from panels [begin, end). */
static void key_products(const struct backward *f, struct space *w, int64_t base, int64_t first,
                         int64_t last, int64_t begin, int64_t end) {
  int64_t per = f->shape.per, ld = ATTN_TQ / per;
  struct attn_product p = {.pairs = f->shape.pairs,
                           .m = last - first,
                           .nv = f->shape.nv,
                           .k = (end - begin) * ATTN_NR / per,
                           .a = w->p_units + first * ld + begin * ATTN_NR / per,
                           .a_row = ld,
                           .a_k = 1,
                           .b = w->do_sum + begin * ATTN_NR / per * f->shape.dp,
                           .ldb = f->shape.dp,
                           .c = w->dv + (base + first) * f->shape.dp,
                           .ldc = f->shape.dp,
                           .add = true};
  MOE_FN(attn_product)(&p);
  p.a = w->ds_units + first * ld + begin * ATTN_NR / per;
  p.b = w->q_sum + begin * ATTN_NR / per * f->shape.dp;
  p.c = w->dk + (base + first) * f->shape.dp;
  MOE_FN(attn_product)(&p);
}

/* Adds dK and dV of every block of keys from the panels that see it; blocks seen by the same
 * panels go together. */
static void add_keys(const struct backward *f, struct space *w, int64_t base,
                     const struct attn_span *span) {
  int64_t from = 0, begin = 0, end = 0;
  for (int64_t r = 0; r <= ATTN_TK; r += ATTN_MR) {
    int64_t b = 0, e = ATTN_PANELS;
    while (b < e && (r < span[b].begin || r >= span[b].end)) b++;
    while (e > b && (r < span[e - 1].begin || r >= span[e - 1].end)) e--;
    if (b == begin && e == end && r < ATTN_TK) continue;
    if (begin < end) key_products(f, w, base, from, r, begin, end);
    from = r;
    begin = b;
    end = e;
  }
}

/* One query tile against the key tile at chunk row `base`, key k0 of the sequence. */
static void step(const struct backward *f, struct space *w, int64_t base, int64_t k0) {
  struct attn_span spans[ATTN_PANELS];
  int64_t per = f->shape.per;
  for (int64_t i = 0; i < ATTN_PANELS; i++) {
    int64_t col = i * ATTN_NR;
    struct attn_span span = spans[i] = attn_span_of(w->lo, w->hi, col, k0);
    if (span.begin >= span.end) continue;
    struct attn_product p = {.pairs = f->shape.pairs,
                             .m = span.end - span.begin,
                             .nv = 2,
                             .k = f->shape.units,
                             .a = w->k_rows + (base + span.begin) * f->shape.ld_row,
                             .a_row = f->shape.ld_row,
                             .a_k = 1,
                             .b = w->qt + col,
                             .ldb = ATTN_TQ,
                             .c = w->s + span.begin * ATTN_TQ + col,
                             .ldc = ATTN_TQ};
    MOE_FN(attn_product)(&p);
    p.a = w->v_rows + (base + span.begin) * f->shape.ld_row;
    p.b = w->dot + col;
    p.c = w->ds + span.begin * ATTN_TQ + col;
    MOE_FN(attn_product)(&p);
    gradients(f, w, span, col, k0);
    gradients(f, w, span, col + MOE_VW, k0);
    struct attn_product q = {.pairs = f->shape.pairs,
                             .m = ATTN_NR,
                             .nv = f->shape.nv,
                             .k = (span.end - span.begin) / per,
                             .a = w->ds_keys + span.begin / per * ATTN_TQ + col,
                             .a_row = 1,
                             .a_k = ATTN_TQ,
                             .b = w->k_sum + (base + span.begin) / per * f->shape.dp,
                             .ldb = f->shape.dp,
                             .c = w->dq + col * f->shape.dp,
                             .ldc = f->shape.dp,
                             .add = true};
    MOE_FN(attn_product)(&q);
  }
  add_keys(f, w, base, spans);
}

/* Rows of x, times factor, to columns [col, col + D) of dst. */
static void store_rows(const struct backward *f, const struct moe_mat *dst, int64_t row, int64_t n,
                       int64_t col, const float *x, float factor) {
  int64_t d = f->a->head_dim;
  const vf scale = vf_set(factor);
  for (int64_t r = 0; r < n; r++, x += f->shape.dp) {
    void *out = mat_row(dst, row + r);
    int64_t i = 0;
    for (; i + MOE_VW <= d; i += MOE_VW) vx_store(out, dst->dtype, col + i, vf_load(x + i) * scale);
    if (i < d) vx_store_n(out, dst->dtype, col + i, vf_load(x + i) * scale, d - i);
  }
}

/* The share of this chunk in dQ of a tile: written, or added to what earlier rounds left. */
static void give_dq(const struct backward *f, struct space *w, int64_t row, int64_t n, int64_t head,
                    int64_t chunk) {
  const struct moe_attn_args *a = f->a;
  int64_t d = a->head_dim, width = a->heads * d;
  if (f->slot == NULL) {
    store_rows(f, &f->args->dq, row, n, head * d, w->dq, a->scale);
    return;
  }
  float *slot = f->slot + chunk % f->slots * a->batch * a->sq * width;
  struct moe_mat to = moe_mat_of(slot, MOE_F32, a->batch * a->sq, width);
  if (f->pass > 0)
    for (int64_t r = 0; r < n; r++)
      for (int64_t i = 0; i < d; i++)
        w->dq[r * f->shape.dp + i] += slot[(row + r) * width + head * d + i];
  store_rows(f, &to, row, n, head * d, w->dq, 1.0f);
}

static void query_tile(const struct backward *f, struct space *w, int64_t b, int64_t head,
                       int64_t row, int64_t chunk) {
  const struct moe_attn_args *a = f->a;
  int64_t n = moe_min64(ATTN_TQ, a->sq - row), first = chunk * CHUNK;
  int64_t begin = moe_max64(f->lo[row], first);
  int64_t end = moe_min64(f->hi[row + n - 1], moe_min64(first + CHUNK, a->sk));
  if (begin >= end) {
    memset(w->dq, 0, (size_t)(ATTN_TQ * f->shape.dp) * 4);
    if (f->pass == 0) give_dq(f, w, b * a->sq + row, n, head, chunk);
    return;
  }
  pack_queries(f, w, b, head, row, n);
  for (int64_t k0 = begin / ATTN_TK * ATTN_TK; k0 < end; k0 += ATTN_TK) step(f, w, k0 - first, k0);
  give_dq(f, w, b * a->sq + row, n, head, chunk);
}

static void tasks(void *arg, int64_t task, int64_t last, int32_t thread) {
  const struct backward *f = arg;
  const struct moe_attn_args *a = f->a;
  int64_t group = a->heads / a->kv_heads;
  struct space *w = space_of(f, moe_cpu_workspace(f->s, thread));
  for (; task < last; task++) {
    int64_t g = task % a->kv_heads, b = task / a->kv_heads % a->batch;
    int64_t chunk = f->pass + task / a->kv_heads / a->batch, first = chunk * CHUNK;
    int64_t n = moe_min64(CHUNK, a->sk - first);
    pack_chunk(f, w, b, g, first, n);
    for (int64_t h = 0; h < group; h++)
      for (int64_t row = 0; row < a->sq; row += ATTN_TQ)
        query_tile(f, w, b, g * group + h, row, chunk);
    int64_t at = b * a->sk + first, col = g * a->head_dim;
    store_rows(f, &f->args->dk, at, n, col, w->dk, a->scale);
    store_rows(f, &f->args->dv, at, n, col, w->dv, 1.0f);
  }
}

/* dQ = scale * the slots' sum, rows [first, last). */
static void add_slots(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct backward *f = arg;
  const struct moe_attn_args *a = f->a;
  int64_t width = a->heads * a->head_dim, stride = a->batch * a->sq * width;
  const vf scale = vf_set(a->scale);
  for (int64_t r = first; r < last; r++) {
    void *out = mat_row(&f->args->dq, r);
    for (int64_t i = 0; i < width; i += MOE_VW) {
      const float *x = f->slot + r * width + i;
      int64_t n = moe_min64(MOE_VW, width - i);
      vf sum = vf_load_n(x, n);
      for (int64_t c = 1; c < f->slots; c++) sum += vf_load_n(x + c * stride, n);
      vx_store_n(out, f->args->dq.dtype, i, sum * scale, n);
    }
  }
}

static int64_t chunks_of(const struct moe_attn_args *a) {
  return moe_max64(moe_div_up(a->sk, CHUNK), 1);
}
static size_t ranges_bytes(const struct moe_attn_args *a) {
  return moe_round_up((size_t)a->sq * 8, 64);
}

size_t MOE_FN(attn_bwd_bytes)(const struct moe_attn_args *a) {
  int64_t chunks = chunks_of(a), slots = chunks > 1 ? moe_min64(chunks, SLOTS) : 0;
  return ranges_bytes(a) + (size_t)(slots * a->batch * a->sq * a->heads * a->head_dim) * 4;
}

void MOE_FN(attn_bwd)(struct moe_stream *s, const struct moe_attn_bwd_args *args) {
  const struct moe_attn_args *a = &args->fwd;
  int32_t *lo = args->scratch, *hi = lo + a->sq;
  MOE_FN(attn_ranges)(a, 0, a->sq, lo, hi);
  struct backward f = {.args = args, .a = a, .s = s, .lo = lo, .hi = hi};
  f.shape = attn_shape_of(attn_pairs(s, a) && args->d_o.dtype == MOE_BF16, a->head_dim);
  f.chunks = chunks_of(a);
  f.slots = moe_min64(f.chunks, SLOTS);
  if (f.chunks > 1) f.slot = (float *)((char *)args->scratch + ranges_bytes(a));
  for (; f.pass < f.chunks; f.pass += f.slots)
    moe_cpu_for(s, a->batch * a->kv_heads * moe_min64(f.slots, f.chunks - f.pass), 1, tasks, &f);
  if (f.slot) moe_cpu_for(s, a->batch * a->sq, 16, add_slots, &f);
}
