/* Rows of the embedding and their gradient. Backward sorts the tokens by id (a stable counting sort
 * in the caller's scratch), so an id's rows are added in token order by one thread. */
#include "kernels/cpu/ops.h"

enum { RUN_BLOCK = 64, COLS = 512 };

static void embed_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_embed_args *a = arg;
  int64_t n = a->y.cols;
  moe_dtype dtype = a->y.dtype;
  for (int64_t t = first; t < last; t++) {
    int64_t id = (int64_t)a->token[t] - a->first, i = 0;
    void *y = mat_row(&a->y, t);
    if (id < 0 || id >= a->rows) {
      memset(y, 0, (size_t)n * moe_dtype_bytes(dtype));
      continue;
    }
    const float *w = a->w + id * n;
    for (; i + MOE_VW <= n; i += MOE_VW) vx_store(y, dtype, i, vf_load(w + i));
    if (i < n) vx_store_n(y, dtype, i, vf_load_n(w + i, n - i), n - i);
  }
}

void MOE_FN(embed)(struct moe_stream *s, const struct moe_embed_args *a) {
  struct moe_embed_args args = *a;
  moe_cpu_for(s, a->y.rows, moe_cpu_row_grain(a->y.cols * 4), embed_range, &args);
}

size_t MOE_FN(embed_bwd_bytes)(int64_t tokens, int64_t rows) {
  return (size_t)(tokens + rows + 1) * sizeof(int32_t);
}

struct back {
  const struct moe_embed_bwd_args *a;
  const int32_t *order; /* tokens of this shard, by id, then in order */
  int64_t n, chunks;    /* of order; column chunks */
};

static inline int64_t id_at(const struct back *b, int64_t i) {
  return (int64_t)b->a->token[b->order[i]] - b->a->first;
}

/* dw += the rows order[i..end), columns [c, last). */
static void add_run(const struct back *b, float *dw, int64_t i, int64_t end, int64_t c,
                    int64_t last) {
  const struct moe_mat *dy = &b->a->dy;
  for (; i < end; i++) {
    const void *row = mat_row(dy, b->order[i]);
    int64_t j = c;
    for (; j + MOE_VW <= last; j += MOE_VW)
      vf_store(dw + j, vf_load(dw + j) + vx_load(row, dy->dtype, j));
    for (; j < last; j++) dw[j] += mx_get(row, dy->dtype, j);
  }
}

/* A task is a block of `order` and a chunk of columns; a run belongs to the block it begins in. */
static void back_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct back *b = arg;
  int64_t cols = b->a->dy.cols;
  for (int64_t task = first; task < last; task++) {
    int64_t begin = task / b->chunks * RUN_BLOCK, stop = moe_min64(begin + RUN_BLOCK, b->n);
    int64_t c = task % b->chunks * COLS;
    int64_t i = begin;
    while (i > 0 && i < stop && id_at(b, i) == id_at(b, begin - 1)) i++;
    while (i < stop) {
      int64_t id = id_at(b, i), end = i + 1;
      while (end < b->n && id_at(b, end) == id) end++;
      add_run(b, b->a->dw + id * cols, i, end, c, moe_min64(c + COLS, cols));
      i = end;
    }
  }
}

void MOE_FN(embed_bwd)(struct moe_stream *s, const struct moe_embed_bwd_args *a) {
  int64_t T = a->dy.rows, V = a->rows;
  int32_t *start = a->scratch, *order = start + V + 1;
  memset(start, 0, (size_t)(V + 1) * sizeof *start);
  for (int64_t t = 0; t < T; t++) {
    int64_t id = (int64_t)a->token[t] - a->first;
    if (id >= 0 && id < V) start[id + 1]++;
  }
  for (int64_t id = 0; id < V; id++) start[id + 1] += start[id];
  struct back b = {a, order, start[V], moe_div_up(a->dy.cols, COLS)};
  for (int64_t t = 0; t < T; t++) {
    int64_t id = (int64_t)a->token[t] - a->first;
    if (id >= 0 && id < V) order[start[id]++] = (int32_t)t;
  }
  moe_cpu_for(s, moe_div_up(b.n, RUN_BLOCK) * b.chunks, 1, back_range, &b);
}
