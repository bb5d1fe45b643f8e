/* The matrix products of the table: groups cut into blocks of C, dealt to the threads. The cut may
 * depend on the number of threads, bits do not (matmul.h). */
#include "kernels/cpu/matmul.h"

struct product {
  struct moe_stream *s;
  const struct moe_matmul_args *mul; /* forward or backward-data, or */
  const struct moe_wgrad_args *wgrad;
  bool backward;
  int64_t groups, total; /* rows of all groups */
  const int32_t *offset; /* NULL: one group of `total` rows */
};

struct grid {
  int64_t rows, cols; /* blocks of C */
};

enum {
  TASKS_PER_THREAD = 8, /* for balance; more would pack more often */
  SMALLEST_ROWS = 8 * MM_MR,
  SMALLEST_COLS = 4 * MM_NR
};

static int64_t first_row(const struct product *p, int64_t g) {
  return p->offset ? p->offset[g] : 0;
}
static int64_t rows_of(const struct product *p, int64_t g) {
  return p->offset ? p->offset[g + 1] - p->offset[g] : p->total;
}

static struct mm_side side(struct moe_mat m, int64_t first, int64_t rows, bool by_depth) {
  return (struct mm_side){.p = mat_row(&m, first),
                          .ld = m.ld,
                          .lines = by_depth ? rows : m.cols,
                          .depth = by_depth ? m.cols : rows,
                          .dtype = m.dtype,
                          .by_depth = by_depth};
}

static struct mm_job mul_job(const struct product *p, int64_t g) {
  const struct moe_matmul_args *a = p->mul;
  const struct moe_weight *w = a->w;
  mm_unit unit = mm_unit_of(w->dtype, p->s->dot_bf16);
  return (struct mm_job){.a = side(a->x, first_row(p, g), rows_of(p, g), true),
                         .b = mm_weight_side(w, g, p->backward),
                         .b_packed = w->prepared ? mm_weight_panels(w, unit, g, p->backward) : NULL,
                         .unit = unit,
                         .c = mat_row(&a->y, first_row(p, g)),
                         .ldc = a->y.ld,
                         .c_dtype = a->y.dtype,
                         .add = a->accumulate,
                         .bias = a->bias ? a->bias + g * w->out : NULL};
}
static struct mm_job wgrad_job(const struct product *p, int64_t g) {
  const struct moe_wgrad_args *a = p->wgrad;
  bool bf16 = a->dy.dtype == MOE_BF16 && a->x.dtype == MOE_BF16;
  return (struct mm_job){.a = side(a->dy, first_row(p, g), rows_of(p, g), false),
                         .b = side(a->x, first_row(p, g), rows_of(p, g), false),
                         .unit = mm_unit_of(bf16 ? MOE_BF16 : MOE_F32, p->s->dot_bf16),
                         .c = a->dw + g * a->dy.cols * a->x.cols,
                         .ldc = a->x.cols,
                         .c_dtype = MOE_F32,
                         .add = a->accumulate};
}
static struct mm_job job_of(const struct product *p, int64_t g) {
  return p->mul ? mul_job(p, g) : wgrad_job(p, g);
}

static struct grid grid_of(const struct product *p, const struct mm_job *j, int64_t g) {
  int64_t m = j->a.lines, n = j->b.lines, rows = rows_of(p, g);
  struct grid grid = {moe_div_up(m, MM_MT), moe_div_up(n, MM_NT)};
  if (m == 0 || n == 0) return (struct grid){0, 0};
  int64_t tasks = p->s->threads > 1 ? p->s->threads * TASKS_PER_THREAD : 1;
  int64_t want = p->total > 0 ? moe_div_up(tasks * rows, p->total) : 1;
  while (grid.rows * grid.cols < want) {
    int64_t mt = m / grid.rows, nt = n / grid.cols;
    bool rows_can = mt >= 2 * SMALLEST_ROWS, cols_can = nt >= 2 * SMALLEST_COLS;
    if (rows_can && (mt >= nt || !cols_can))
      grid.rows *= 2;
    else if (cols_can)
      grid.cols *= 2;
    else
      break;
  }
  return grid;
}

static int64_t tasks_of(const struct product *p, int64_t g) {
  struct mm_job j = job_of(p, g);
  struct grid grid = grid_of(p, &j, g);
  return grid.rows * grid.cols;
}

/* Task number `task`: counts through the groups, columns fastest. */
static void block_task(void *arg, int64_t task, int32_t thread) {
  const struct product *p = arg;
  int64_t g = 0;
  for (int64_t n = tasks_of(p, g); task >= n; n = tasks_of(p, g)) {
    task -= n;
    g++;
  }
  struct mm_job j = job_of(p, g);
  struct grid grid = grid_of(p, &j, g);
  int64_t r = task / grid.cols, c = task % grid.cols;
  int64_t panels = moe_div_up(j.b.lines, MM_NR);
  MOE_FN(mm_block)(&j, j.a.lines * r / grid.rows, j.a.lines * (r + 1) / grid.rows,
                   panels * c / grid.cols * MM_NR,
                   moe_min64(panels * (c + 1) / grid.cols * MM_NR, j.b.lines),
                   moe_cpu_workspace(p->s, thread));
}

static void run(struct product *p, struct moe_groups_rows rows, int64_t all_rows) {
  p->offset = rows.host ? rows.host : rows.device;
  p->total = p->offset ? p->offset[p->groups] - p->offset[0] : all_rows;
  int64_t tasks = 0;
  for (int64_t g = 0; g < p->groups; g++) tasks += tasks_of(p, g);
  moe_pool_run(p->s->pool, block_task, p, tasks);
}

void MOE_FN(matmul)(struct moe_stream *s, const struct moe_matmul_args *a) {
  struct product p = {.s = s, .mul = a, .groups = a->w->groups};
  run(&p, a->rows, a->x.rows);
}
void MOE_FN(matmul_bwd)(struct moe_stream *s, const struct moe_matmul_args *a) {
  struct product p = {.s = s, .mul = a, .backward = true, .groups = a->w->groups};
  run(&p, a->rows, a->x.rows);
}
void MOE_FN(matmul_wgrad)(struct moe_stream *s, const struct moe_wgrad_args *a) {
  struct product p = {.s = s, .wgrad = a, .groups = a->groups};
  run(&p, a->rows, a->x.rows);
}
