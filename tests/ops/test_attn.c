/* attn, attn_bwd: against the definition in double. */
#include "kernels/cpu/cpu.h"
#include "ops/ops.h"

enum positions {
  TAIL,  /* the queries are the last positions (the first see nothing when sq > sk) */
  OWN,   /* zig-zag context parallelism, a rank's own keys: two ranges with a gap */
  OTHER, /* the same rank against the two middle chunks: half the queries see nothing */
  GAPS,  /* random ascending positions, some repeated */
  LATER, /* every key lies after every query */
};

struct shape {
  moe_dtype dtype;
  int64_t batch, sq, sk, heads, kv_heads, d;
  enum positions positions;
  int64_t window;
  double std; /* of queries and keys */
  bool dot;   /* bf16 products on pairs, where the set has them */
};

#define F MOE_F32
#define H MOE_BF16
static const struct shape shapes[] = {
    {F, 1, 1, 1, 1, 1, 2, TAIL, 0, 1, false},       {F, 2, 64, 64, 2, 1, 64, TAIL, 0, 1, false},
    {F, 2, 150, 150, 4, 2, 40, TAIL, 0, 1, false},  {F, 1, 97, 97, 8, 1, 10, OWN, 0, 1, false},
    {F, 1, 130, 130, 3, 3, 6, GAPS, 0, 1, false},   {F, 1, 131, 77, 2, 2, 128, TAIL, 0, 1, false},
    {F, 1, 33, 200, 10, 2, 32, TAIL, 0, 6, false},  {F, 2, 80, 80, 2, 1, 16, OTHER, 0, 1, false},
    {F, 1, 70, 130, 2, 1, 18, LATER, 0, 1, false},  {F, 1, 65, 65, 1, 1, 256, TAIL, 0, 1, false},
    {F, 1, 260, 260, 2, 1, 12, TAIL, 7, 1, false},  {F, 1, 260, 260, 1, 1, 8, TAIL, 100, 4, false},
    {F, 1, 190, 190, 1, 1, 14, GAPS, 9, 1, false},  {F, 1, 160, 160, 2, 2, 14, OWN, 50, 1, false},
    {F, 2, 40, 1100, 2, 1, 6, TAIL, 0, 1, false},   {F, 1, 24, 2600, 1, 1, 4, GAPS, 0, 1, false},
    {F, 1, 70, 2600, 1, 1, 4, TAIL, 600, 1, false}, {F, 2, 0, 9, 2, 1, 8, TAIL, 0, 1, false},
    {F, 2, 9, 0, 2, 1, 8, TAIL, 0, 1, false},       {F, 0, 9, 9, 2, 1, 8, TAIL, 0, 1, false},
    {H, 2, 90, 90, 4, 2, 64, TAIL, 0, 1, false},    {H, 1, 77, 131, 2, 2, 10, GAPS, 9, 1, false},
    {H, 2, 90, 90, 4, 2, 64, TAIL, 0, 1, true},     {H, 1, 77, 131, 2, 2, 10, GAPS, 9, 1, true},
    {H, 1, 131, 77, 2, 1, 128, TAIL, 0, 3, true},   {H, 1, 97, 97, 5, 1, 6, OWN, 0, 1, true},
    {H, 1, 80, 80, 2, 1, 16, OTHER, 0, 1, true},    {H, 1, 65, 65, 1, 1, 256, TAIL, 20, 1, true},
    {H, 1, 30, 1100, 2, 1, 8, TAIL, 0, 1, true},    {H, 1, 9, 0, 2, 1, 8, TAIL, 0, 1, true},
};

/* The definition. Every output has beside it the bound of its error: terms weighted by
 * e_p + e * a, where e_p is the rounding of P and dS (2^-8 on pairs), e a few roundings of fp32,
 * and a the magnitude of the exponent of the row, whose absolute error is the relative one of P. */
struct reference {
  int64_t batch, sq, sk, heads, kv_heads, d, window;
  const int32_t *q_pos, *k_pos;
  double scale, e_p, e;
  double *q, *k, *v, *o, *lse, *d_o, *dq, *dk, *dv;
  double *o_bound, *lse_bound, *dq_bound, *dk_bound, *dv_bound;
  double *p; /* (sk) of the row at work */
};

static bool sees(const struct reference *r, int64_t i, int64_t j) {
  int64_t distance = (int64_t)r->q_pos[i] - r->k_pos[j];
  return distance >= 0 && (r->window == 0 || distance < r->window);
}
static double *q_row(const struct reference *r, double *x, int64_t b, int64_t h, int64_t i) {
  return x + ((b * r->sq + i) * r->heads + h) * r->d;
}
static double *k_row(const struct reference *r, double *x, int64_t b, int64_t h, int64_t j) {
  int64_t g = h / (r->heads / r->kv_heads);
  return x + ((b * r->sk + j) * r->kv_heads + g) * r->d;
}

/* Scaled scores of a row into r->p (-INFINITY: not seen). Returns the magnitude of the exponent. */
static double score_row(struct reference *r, int64_t b, int64_t h, int64_t i) {
  double largest = 0;
  const double *q = q_row(r, r->q, b, h, i);
  for (int64_t j = 0; j < r->sk; j++) {
    r->p[j] = -INFINITY;
    if (!sees(r, i, j)) continue;
    const double *k = k_row(r, r->k, b, h, j);
    double s = 0, mag = 0;
    for (int64_t d = 0; d < r->d; d++) {
      s += q[d] * k[d];
      mag += fabs(q[d] * k[d]);
    }
    r->p[j] = s * r->scale;
    largest = fmax(largest, mag * r->scale);
  }
  return 1 + 2 * largest;
}

static void forward_row(struct reference *r, int64_t b, int64_t h, int64_t i) {
  double a = score_row(r, b, h, i), max = -INFINITY, sum = 0;
  double *o = q_row(r, r->o, b, h, i), *bound = q_row(r, r->o_bound, b, h, i);
  for (int64_t j = 0; j < r->sk; j++) max = fmax(max, r->p[j]);
  for (int64_t d = 0; d < r->d; d++) o[d] = bound[d] = 0;
  for (int64_t j = 0; j < r->sk; j++)
    if (r->p[j] > -INFINITY) sum += exp(r->p[j] - max);
  int64_t at = (b * r->heads + h) * r->sq + i;
  r->lse[at] = sum > 0 ? max + log(sum) : -INFINITY;
  r->lse_bound[at] = r->e * (a + fabs(log(sum)));
  for (int64_t j = 0; j < r->sk; j++) {
    if (r->p[j] == -INFINITY) continue;
    double p = exp(r->p[j] - r->lse[at]);
    const double *v = k_row(r, r->v, b, h, j);
    for (int64_t d = 0; d < r->d; d++) {
      o[d] += p * v[d];
      bound[d] += (r->e_p + r->e * a) * p * fabs(v[d]);
    }
  }
}

/* From r->o and r->lse as given. */
static void backward_row(struct reference *r, int64_t b, int64_t h, int64_t i) {
  double a = score_row(r, b, h, i), lse = r->lse[(b * r->heads + h) * r->sq + i];
  const double *q = q_row(r, r->q, b, h, i), *o = q_row(r, r->o, b, h, i);
  const double *d_o = q_row(r, r->d_o, b, h, i);
  double *dq = q_row(r, r->dq, b, h, i), *dq_bound = q_row(r, r->dq_bound, b, h, i);
  double delta = 0, delta_mag = 0;
  for (int64_t d = 0; d < r->d; d++) {
    delta += d_o[d] * o[d];
    delta_mag += fabs(d_o[d] * o[d]);
  }
  for (int64_t j = 0; j < r->sk; j++) {
    if (r->p[j] == -INFINITY) continue;
    const double *k = k_row(r, r->k, b, h, j), *v = k_row(r, r->v, b, h, j);
    double *dk = k_row(r, r->dk, b, h, j), *dk_bound = k_row(r, r->dk_bound, b, h, j);
    double *dv = k_row(r, r->dv, b, h, j), *dv_bound = k_row(r, r->dv_bound, b, h, j);
    double p = exp(r->p[j] - lse), dp = 0, mag = delta_mag;
    for (int64_t d = 0; d < r->d; d++) {
      dp += d_o[d] * v[d];
      mag += fabs(d_o[d] * v[d]);
    }
    double ds = r->scale * p * (dp - delta);
    double ds_bound = r->e_p * fabs(ds) + r->e * a * r->scale * p * mag;
    double p_bound = (r->e_p + r->e * a) * p;
    for (int64_t d = 0; d < r->d; d++) {
      dq[d] += ds * k[d];
      dq_bound[d] += ds_bound * fabs(k[d]);
      dk[d] += ds * q[d];
      dk_bound[d] += ds_bound * fabs(q[d]);
      dv[d] += p * d_o[d];
      dv_bound[d] += p_bound * fabs(d_o[d]);
    }
  }
}

static void each_row(struct reference *r,
                     void (*fn)(struct reference *, int64_t, int64_t, int64_t)) {
  for (int64_t b = 0; b < r->batch; b++)
    for (int64_t h = 0; h < r->heads; h++)
      for (int64_t i = 0; i < r->sq; i++) fn(r, b, h, i);
}

static struct reference make_reference(struct ops *o, const struct shape *s, const int32_t *q_pos,
                                       const int32_t *k_pos, double scale) {
  struct reference r = {.batch = s->batch,
                        .sq = s->sq,
                        .sk = s->sk,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .d = s->d,
                        .window = s->window,
                        .q_pos = q_pos,
                        .k_pos = k_pos,
                        .scale = scale,
                        .e = 4 * OPS_EPS};
  int64_t nq = s->batch * s->sq * s->heads * s->d, nk = s->batch * s->sk * s->kv_heads * s->d;
  double **of_q[] = {&r.q, &r.o, &r.d_o, &r.dq, &r.o_bound, &r.dq_bound};
  double **of_k[] = {&r.k, &r.v, &r.dk, &r.dv, &r.dk_bound, &r.dv_bound};
  for (size_t i = 0; i < MOE_COUNTOF(of_q); i++) {
    *of_q[i] = ops_doubles(o, nq);
    *of_k[i] = ops_doubles(o, nk);
  }
  r.lse = ops_doubles(o, s->batch * s->heads * s->sq);
  r.lse_bound = ops_doubles(o, s->batch * s->heads * s->sq);
  r.p = ops_doubles(o, s->sk);
  return r;
}

static void make_positions(struct ops *o, const struct shape *s, int32_t *q_pos, int32_t *k_pos) {
  int32_t sq = (int32_t)s->sq, sk = (int32_t)s->sk, q = 0, k = 0;
  for (int32_t i = 0; i < sq; i++) {
    q += (int32_t)ops_below(o, 4);
    switch (s->positions) {
      case TAIL:
        q_pos[i] = sk - sq + i;
        break;
      case OWN:
      case OTHER:
        q_pos[i] = i < sq / 2 ? i : i + sq;
        break;
      case GAPS:
        q_pos[i] = q;
        break;
      case LATER:
        q_pos[i] = i;
        break;
    }
  }
  for (int32_t j = 0; j < sk; j++) {
    k += (int32_t)ops_below(o, 4);
    switch (s->positions) {
      case TAIL:
        k_pos[j] = j;
        break;
      case OWN:
        k_pos[j] = j < sk / 2 ? j : j + sk;
        break;
      case OTHER:
        k_pos[j] = sk / 2 + j;
        break;
      case GAPS:
        k_pos[j] = k;
        break;
      case LATER:
        k_pos[j] = sq + j;
        break;
    }
  }
}

/* q, k, v and their gradients lie side by side in one matrix where the row counts allow. */
struct tensors {
  struct moe_attn_bwd_args args;
  float *lse;
};
static struct tensors make_tensors(struct ops *o, const struct shape *s, int64_t batch) {
  int64_t nq = batch * s->sq, nk = batch * s->sk, cq = s->heads * s->d, ck = s->kv_heads * s->d;
  struct tensors t = {0};
  struct moe_attn_args *a = &t.args.fwd;
  *a = (struct moe_attn_args){.batch = batch,
                              .sq = s->sq,
                              .sk = s->sk,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .head_dim = s->d,
                              .window = s->window,
                              .scale = (float)(1 / sqrt((double)s->d))};
  if (s->sq == s->sk) {
    struct moe_mat x = ops_mat(o, s->dtype, nq, cq + 2 * ck, 3);
    struct moe_mat dx = ops_mat(o, s->dtype, nq, cq + 2 * ck, 0);
    a->q = moe_mat_cols(x, 0, cq);
    a->k = moe_mat_cols(x, cq, ck);
    a->v = moe_mat_cols(x, cq + ck, ck);
    t.args.dq = moe_mat_cols(dx, 0, cq);
    t.args.dk = moe_mat_cols(dx, cq, ck);
    t.args.dv = moe_mat_cols(dx, cq + ck, ck);
  } else {
    a->q = ops_mat(o, s->dtype, nq, cq, 1);
    a->k = ops_mat(o, s->dtype, nk, ck, 5);
    a->v = ops_mat(o, s->dtype, nk, ck, 0);
    t.args.dq = ops_mat(o, s->dtype, nq, cq, 7);
    t.args.dk = ops_mat(o, s->dtype, nk, ck, 0);
    t.args.dv = ops_mat(o, s->dtype, nk, ck, 2);
  }
  a->o = ops_mat(o, s->dtype, nq, cq, 4);
  t.args.d_o = ops_mat(o, s->dtype, nq, cq, 2);
  a->lse = t.lse = ops_floats(o, batch * s->heads * s->sq);
  t.args.scratch = ops_floats(o, (int64_t)(o->k->attn_bwd_bytes(a) + 3) / 4);
  return t;
}

static void against_reference(struct ops *o, const void *arg) {
  const struct shape *s = arg;
  int32_t *q_pos = ops_ints(o, s->sq), *k_pos = ops_ints(o, s->sk);
  make_positions(o, s, q_pos, k_pos);
  struct tensors t = make_tensors(o, s, s->batch);
  struct moe_attn_args *a = &t.args.fwd;
  a->q_pos = q_pos;
  a->k_pos = k_pos;
  ops_random(o, a->q, s->std);
  ops_random(o, a->k, s->std);
  ops_random(o, a->v, 1);
  ops_random(o, t.args.d_o, 1);
  struct reference r = make_reference(o, s, q_pos, k_pos, a->scale);
  bool had = o->s->dot_bf16;
  o->s->dot_bf16 = s->dot;
  if (s->dot && strcmp(o->isa, "avx512bf16") == 0) r.e_p = OPS_EPS_BF16;
  r.q = ops_copy(o, a->q);
  r.k = ops_copy(o, a->k);
  r.v = ops_copy(o, a->v);
  r.d_o = ops_copy(o, t.args.d_o);
  each_row(&r, forward_row);
  a->lse = NULL;
  o->k->attn(o->s, a);
  ops_close(o, "o without lse", a->o, r.o, r.o_bound, 1);
  a->lse = t.lse;
  o->k->attn(o->s, a);
  ops_close(o, "o", a->o, r.o, r.o_bound, 1);
  ops_close_f(o, "lse", t.lse, s->batch * s->heads * s->sq, r.lse, r.lse_bound, 1);
  r.o = ops_copy(o, a->o);
  r.lse = ops_copy_f(o, t.lse, s->batch * s->heads * s->sq);
  each_row(&r, backward_row);
  o->k->attn_bwd(o->s, &t.args);
  ops_close(o, "dq", t.args.dq, r.dq, r.dq_bound, 1);
  ops_close(o, "dk", t.args.dk, r.dk, r.dk_bound, 1);
  ops_close(o, "dv", t.args.dv, r.dv, r.dv_bound, 1);
  o->s->dot_bf16 = had;
}

/* Attention to the first keys merged with that to the others is attention to all. */
static void merged(struct ops *o, const void *arg) {
  const struct shape *s = arg;
  int32_t *q_pos = ops_ints(o, s->sq), *k_pos = ops_ints(o, s->sk);
  make_positions(o, s, q_pos, k_pos);
  struct tensors t = make_tensors(o, s, 1);
  struct moe_attn_args *a = &t.args.fwd, part;
  a->q_pos = q_pos;
  a->k_pos = k_pos;
  ops_random(o, a->q, s->std);
  ops_random(o, a->k, s->std);
  ops_random(o, a->v, 1);
  struct reference r = make_reference(o, s, q_pos, k_pos, a->scale);
  r.batch = 1;
  r.e *= 4; /* two more exponentials and a sum */
  r.q = ops_copy(o, a->q);
  r.k = ops_copy(o, a->k);
  r.v = ops_copy(o, a->v);
  each_row(&r, forward_row);
  struct moe_mat sum = ops_mat(o, MOE_F32, a->o.rows, a->o.cols, 3);
  float *more = ops_floats(o, s->heads * s->sq);
  bool had = o->s->dot_bf16;
  o->s->dot_bf16 = false;
  for (int half = 0; half < 2; half++) {
    int64_t first = half ? s->sk / 3 : 0, rows = half ? s->sk - first : s->sk / 3;
    part = *a;
    part.k = moe_mat_rows(a->k, first, rows);
    part.v = moe_mat_rows(a->v, first, rows);
    part.k_pos = k_pos + first;
    part.sk = rows;
    part.lse = half ? more : t.lse;
    o->k->attn(o->s, &part);
    if (half == 0) o->k->convert(o->s, sum, a->o);
  }
  o->k->attn_merge(o->s, &(struct moe_attn_merge_args){
                             .o = sum, .lse = t.lse, .more = a->o, .more_lse = more, .batch = 1,
                             .seq = s->sq, .heads = s->heads, .head_dim = s->d});
  ops_close(o, "merged o", sum, r.o, r.o_bound, 1);
  ops_close_f(o, "merged lse", t.lse, s->heads * s->sq, r.lse, r.lse_bound, 1);
  o->s->dot_bf16 = had;
}

static void compare_bits(struct ops *o, const char *what, struct moe_mat a, struct moe_mat b,
                         int64_t first) {
  size_t e = moe_dtype_bytes(a.dtype);
  for (int64_t r = 0; r < b.rows; r++)
    if (memcmp((char *)a.p + (size_t)((first + r) * a.ld) * e, (char *)b.p + (size_t)(r * b.ld) * e,
               (size_t)b.cols * e) != 0)
      ops_fail(o, "%s, row %ld: a sequence alone has other bits than in the batch", what,
               (long)(first + r));
}
static void copy_rows(struct moe_mat to, struct moe_mat from, int64_t first) {
  for (int64_t r = 0; r < to.rows; r++)
    for (int64_t c = 0; c < to.cols; c++) ops_set(to, r, c, ops_get(from, first + r, c));
}

/* Each sequence of a batch on its own gives the same bits. */
static void batch_alone(struct ops *o, const void *arg) {
  const struct shape *s = arg;
  int32_t *q_pos = ops_ints(o, s->sq), *k_pos = ops_ints(o, s->sk);
  make_positions(o, s, q_pos, k_pos);
  struct tensors all = make_tensors(o, s, s->batch), one = make_tensors(o, s, 1);
  struct moe_attn_args *a = &all.args.fwd, *c = &one.args.fwd;
  a->q_pos = c->q_pos = q_pos;
  a->k_pos = c->k_pos = k_pos;
  ops_random(o, a->q, 1);
  ops_random(o, a->k, 1);
  ops_random(o, a->v, 1);
  ops_random(o, all.args.d_o, 1);
  o->k->attn(o->s, a);
  o->k->attn_bwd(o->s, &all.args);
  for (int64_t b = 0; b < s->batch; b++) {
    int64_t q = b * s->sq, k = b * s->sk;
    copy_rows(c->q, a->q, q);
    copy_rows(c->k, a->k, k);
    copy_rows(c->v, a->v, k);
    copy_rows(one.args.d_o, all.args.d_o, q);
    o->k->attn(o->s, c);
    o->k->attn_bwd(o->s, &one.args);
    compare_bits(o, "o", a->o, c->o, q);
    compare_bits(o, "dq", all.args.dq, one.args.dq, q);
    compare_bits(o, "dk", all.args.dk, one.args.dk, k);
    compare_bits(o, "dv", all.args.dv, one.args.dv, k);
    if (memcmp(all.lse + b * s->heads * s->sq, one.lse, (size_t)(s->heads * s->sq) * 4) != 0)
      ops_fail(o, "lse of sequence %ld alone has other bits", (long)b);
  }
}

/* loss = sum of d_o * o. */
static double loss(void *arg) {
  struct reference *r = arg;
  each_row(r, forward_row);
  double sum = 0;
  for (int64_t i = 0; i < r->batch * r->sq * r->heads * r->d; i++) sum += r->o[i] * r->d_o[i];
  return sum;
}

static void differences(struct ops *o, const void *arg) {
  const struct shape *s = arg;
  int32_t *q_pos = ops_ints(o, s->sq), *k_pos = ops_ints(o, s->sk);
  make_positions(o, s, q_pos, k_pos);
  struct reference r = make_reference(o, s, q_pos, k_pos, 1 / sqrt((double)s->d));
  int64_t nq = s->batch * s->sq * s->heads * s->d, nk = s->batch * s->sk * s->kv_heads * s->d;
  for (int64_t i = 0; i < nq; i++) {
    r.q[i] = ops_normal(o);
    r.d_o[i] = ops_normal(o);
  }
  for (int64_t i = 0; i < nk; i++) {
    r.k[i] = ops_normal(o);
    r.v[i] = ops_normal(o);
  }
  each_row(&r, forward_row);
  each_row(&r, backward_row);
  ops_differences(o, "dq", loss, &r, r.q, nq, r.dq);
  ops_differences(o, "dk", loss, &r, r.k, nk, r.dk);
  ops_differences(o, "dv", loss, &r, r.v, nk, r.dv);
}

static void test_reference(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) {
    char label[32];
    snprintf(label, sizeof label, "attn, shape %zu", i);
    ops_run(label, against_reference, &shapes[i]);
  }
}
static void test_batch(void **state) {
  (void)state;
  static const struct shape batches[] = {{F, 3, 100, 100, 4, 2, 16, TAIL, 0, 1, false},
                                         {H, 3, 70, 70, 2, 1, 32, TAIL, 0, 1, false},
                                         {F, 4, 20, 700, 2, 1, 8, TAIL, 0, 1, false}};
  for (size_t i = 0; i < MOE_COUNTOF(batches); i++)
    ops_run("attn, a batch", batch_alone, &batches[i]);
}
static void test_differences(void **state) {
  (void)state;
  static const struct shape small[] = {{F, 1, 7, 7, 2, 1, 4, TAIL, 0, 1, false},
                                       {F, 2, 6, 9, 2, 2, 2, GAPS, 5, 1, false}};
  for (size_t i = 0; i < MOE_COUNTOF(small); i++)
    ops_run("attn, differences", differences, &small[i]);
}

static void test_merge(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++)
    if (shapes[i].dtype == F && shapes[i].batch > 0) ops_run("attn_merge", merged, &shapes[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_differences),
    cmocka_unit_test(test_reference),
    cmocka_unit_test(test_batch),
    cmocka_unit_test(test_merge),
};
OPS_MAIN(tests)
