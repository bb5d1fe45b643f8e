/* The one thread pool of a context. Invariant: how work is cut into tasks never depends on the
 * number of threads, so results are the same bits with any. Workers wait on a condition variable
 * after a short spin. */
#ifndef MOE_BASE_POOL_H
#define MOE_BASE_POOL_H

#include "base/base.h"

struct moe_pool;

typedef void (*moe_task_fn)(void *arg, int64_t task, int32_t thread);

moe_status moe_pool_create(moe_ctx *ctx, int32_t threads, struct moe_pool **out);
void moe_pool_destroy(struct moe_pool *pool);
int32_t moe_pool_threads(const struct moe_pool *pool);
/* Calls fn(arg, task, thread) for every task in [0, tasks), tasks handed out in increasing order to
 * whichever thread is free, and returns when all are done. The caller works too, as thread 0.
 * Not reentrant: a task must not call it. */
void moe_pool_run(struct moe_pool *pool, moe_task_fn fn, void *arg, int64_t tasks);

#endif
