/* One block of C by one thread: packs its part of A, and B panel by panel just before its use. */
#include "kernels/cpu/matmul.h"

struct block {
  const struct mm_job *job;
  int64_t m0, m1, n0, n1;
  int64_t panels; /* of A; rows are dealt evenly, so none is much smaller than the others */
  float *a, *b, *c;
};

static int64_t panel_row(const struct block *k, int64_t panel) {
  return (k->m1 - k->m0) * panel / k->panels;
}

/* Units [u, u + units) of all panels of A. When lines are contiguous, a few depths of all panels at
 * a time, so that memory is read along the lines. */
static void pack_a(const struct block *k, int64_t u, int64_t units) {
  const struct mm_job *j = k->job;
  int64_t step = j->a.by_depth ? units : 16;
  for (int64_t at = 0; at < units; at += step)
    for (int64_t p = 0; p < k->panels; p++) {
      int64_t row = panel_row(k, p);
      MOE_FN(mm_pack)(&j->a, j->unit, MM_AS, k->m0 + row, panel_row(k, p + 1) - row, u + at,
                      moe_min64(step, units - at), k->a + (p * units + at) * MM_AS);
    }
}

/* Asks for the share `part` of `parts` of the source of B's panel at column n: it is packed after
 * the tiles that are being computed meanwhile. */
static void prefetch_b(const struct mm_job *j, int64_t n, int64_t u, int64_t units, int64_t part,
                       int64_t parts) {
  int64_t per_unit = j->unit == MM_UNIT_PAIR ? 2 : 1, size = (int64_t)moe_dtype_bytes(j->b.dtype);
  int64_t k0 = u * per_unit, k1 = moe_min64(j->b.depth, (u + units) * per_unit);
  int64_t n1 = moe_min64(n + MM_NR, j->b.lines);
  const char *p = j->b.p;
  if (j->b.by_depth) {
    for (int64_t i = n + (n1 - n) * part / parts; i < n + (n1 - n) * (part + 1) / parts; i++)
      for (int64_t at = (i * j->b.ld + k0) * size; at < (i * j->b.ld + k1) * size; at += 64)
        __builtin_prefetch(p + at, 0, 2);
  } else {
    for (int64_t i = k0 + (k1 - k0) * part / parts; i < k0 + (k1 - k0) * (part + 1) / parts; i++)
      for (int64_t at = (i * j->b.ld + n) * size; at < (i * j->b.ld + n1) * size; at += 64)
        __builtin_prefetch(p + at, 0, 2);
  }
}

/* A finished fp32 tile: bias, and to C's dtype. from is C itself when C is fp32. */
static void finish(const struct block *k, const float *from, int64_t ld, int64_t row, int64_t rows,
                   int64_t col, int64_t cols) {
  const struct mm_job *j = k->job;
  for (int64_t r = 0; r < rows; r++) {
    char *c = (char *)j->c + (size_t)((row + r) * j->ldc) * moe_dtype_bytes(j->c_dtype);
    for (int64_t i = 0; i < cols; i += MOE_VW) {
      int64_t n = moe_min64(MOE_VW, cols - i);
      vf v = mm_load_n(from + r * ld + i, n);
      if (j->bias) v += mm_load_n(j->bias + col + i, n);
      if (j->c_dtype == MOE_F32) {
        mm_store_n((float *)c + col + i, v, n);
      } else {
        uint16_t *h = (uint16_t *)c + col + i;
        if (j->add) v += vf_from_bf16(mm_load_h(h, n));
        mm_store_h(h, vf_to_bf16(v), n);
      }
    }
  }
}

/* Tiles of one panel of B. */
static void panel(const struct block *k, struct mm_depth d, int64_t block, int64_t n) {
  const struct mm_job *j = k->job;
  int64_t u = block * d.size, units = moe_min64(d.size, d.units - u);
  int64_t cols = moe_min64(MM_NR, k->n1 - n);
  bool last = block + 1 == d.count, f32 = j->c_dtype == MOE_F32;
  const float *b = k->b;
  if (j->b_packed)
    b = j->b_packed + mm_packed_at(d, j->b.lines, block, n);
  else
    MOE_FN(mm_pack)(&j->b, j->unit, MM_NR, n, cols, u, units, k->b);
  for (int64_t p = 0; p < k->panels; p++) {
    int64_t row = panel_row(k, p), rows = panel_row(k, p + 1) - row;
    float *c;
    int64_t ld;
    if (f32) {
      c = (float *)j->c + (k->m0 + row) * j->ldc + n;
      ld = j->ldc;
    } else if (d.count > 1) {
      c = k->c + row * MM_NT + (n - k->n0);
      ld = MM_NT;
    } else { /* one tile, used again and again: stays in the first cache */
      c = k->c;
      ld = MM_NR;
    }
    MOE_FN(mm_kernel)(j->unit, rows, units, k->a + p * units * MM_AS, b, c, ld, cols,
                      block > 0 || (f32 && j->add));
    if (last && (j->bias || !f32)) finish(k, c, ld, k->m0 + row, rows, n, cols);
    if (!j->b_packed && n + MM_NR < k->n1)
      prefetch_b(j, n + MM_NR, u, units, p, k->panels);
  }
}

/* C when there is no depth: 0 + bias, or untouched by an accumulation. */
static void no_depth(const struct block *k) {
  const struct mm_job *j = k->job;
  if (j->add && !j->bias) return;
  for (int64_t i = 0; i < MM_NT; i++) k->c[i] = 0;
  for (int64_t r = k->m0; r < k->m1; r++) {
    float *c = (float *)j->c + r * j->ldc + k->n0;
    bool f32 = j->c_dtype == MOE_F32;
    finish(k, f32 && j->add ? c : k->c, MM_NT, r, 1, k->n0, k->n1 - k->n0);
  }
}

void MOE_FN(mm_block)(const struct mm_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                      void *workspace) {
  if (m0 >= m1 || n0 >= n1) return;
  struct block k = {.job = job, .m0 = m0, .m1 = m1, .n0 = n0, .n1 = n1,
                    .panels = moe_div_up(m1 - m0, MM_MR)};
  k.b = workspace;
  k.a = k.b + MM_B_UNITS;
  k.c = k.a + MM_A_UNITS;
  struct mm_depth d = mm_depth_of(job->unit, job->a.depth);
  if (d.count == 0) no_depth(&k);
  for (int64_t block = 0; block < d.count; block++) {
    pack_a(&k, block * d.size, moe_min64(d.size, d.units - block * d.size));
    for (int64_t n = n0; n < n1; n += MM_NR) panel(&k, d, block, n);
  }
}
