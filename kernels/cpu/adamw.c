/* One pass of AdamW: 16 bytes read and 12 written per element. */
#include "kernels/cpu/ops.h"

enum { GRAIN = 1 << 13 };

struct update {
  const struct moe_adamw_args *a;
  float grad_scale, keep, beta1, beta2, gain1, gain2, step, root2, eps;
};

struct state {
  vf w, m, v;
};

MOE_INLINE struct state advance(const struct update *u, struct state x, vf g) {
  g *= vf_set(u->grad_scale);
  x.m = x.m * vf_set(u->beta1) + g * vf_set(u->gain1);
  x.v = x.v * vf_set(u->beta2) + g * g * vf_set(u->gain2);
  vf denom = vf_sqrt(x.v) * vf_set(u->root2) + vf_set(u->eps);
  x.w = x.w * vf_set(u->keep) - vf_set(u->step) * (x.m / denom);
  return x;
}

static void update_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct update *u = arg;
  float *w = u->a->w, *m = u->a->m, *v = u->a->v;
  const float *g = u->a->g;
  int64_t i = first;
  for (; i + MOE_VW <= last; i += MOE_VW) {
    struct state x = {vf_load(w + i), vf_load(m + i), vf_load(v + i)};
    x = advance(u, x, vf_load(g + i));
    vf_store(w + i, x.w);
    vf_store(m + i, x.m);
    vf_store(v + i, x.v);
  }
  if (i == last) return;
  int64_t n = last - i;
  struct state x = {vf_load_n(w + i, n), vf_load_n(m + i, n), vf_load_n(v + i, n)};
  x = advance(u, x, vf_load_n(g + i, n));
  vf_store_n(w + i, x.w, n);
  vf_store_n(m + i, x.m, n);
  vf_store_n(v + i, x.v, n);
}

void MOE_FN(adamw)(struct moe_stream *s, const struct moe_adamw_args *a) {
  double t = (double)a->step;
  struct update u = {.a = a,
                     .grad_scale = a->grad_scale ? *a->grad_scale : 1.0f,
                     .keep = (float)(1 - a->lr * a->weight_decay),
                     .beta1 = (float)a->beta1,
                     .beta2 = (float)a->beta2,
                     .gain1 = (float)(1 - a->beta1),
                     .gain2 = (float)(1 - a->beta2),
                     .step = (float)(a->lr / (1 - pow(a->beta1, t))),
                     .root2 = (float)(1 / sqrt(1 - pow(a->beta2, t))),
                     .eps = (float)a->eps};
  moe_cpu_for(s, a->n, GRAIN, update_range, &u);
}
