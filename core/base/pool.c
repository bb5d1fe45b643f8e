/* One job at a time. A job is published by bumping `epoch`; threads take task numbers from one
 * atomic counter, so the order of hand-out is fixed and who runs a task does not matter. A job ends
 * when every worker has left it, so none can take a task of a later job by mistake. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"

enum { SPINS = 4000 };

struct worker {
  struct moe_pool *pool;
  pthread_t thread;
  int32_t index;
};

struct moe_pool {
  moe_ctx *ctx;
  int32_t threads; /* caller included */
  int32_t started; /* worker threads running */
  struct worker *workers;
  moe_task_fn fn;
  void *arg;
  int64_t tasks;
  _Atomic int64_t next;
  _Atomic uint64_t epoch;  /* of the job published last */
  _Atomic int32_t working; /* workers that have not left the job */
  _Atomic int32_t stop;
  _Atomic int32_t sleepers;
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
};

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void work(struct moe_pool *pool, int32_t thread) {
  int64_t tasks = pool->tasks;
  for (;;) {
    int64_t task = atomic_fetch_add(&pool->next, 1);
    if (task >= tasks) break;
    pool->fn(pool->arg, task, thread);
  }
}

/* Waits for an epoch other than `seen`; spins first, then sleeps. */
static uint64_t await_job(struct moe_pool *pool, uint64_t seen) {
  for (int i = 0; i < SPINS; i++) {
    uint64_t now = atomic_load(&pool->epoch);
    if (now != seen) return now;
    pause_cpu();
  }
  pthread_mutex_lock(&pool->mutex);
  pool->sleepers++;
  while (atomic_load(&pool->epoch) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
  pool->sleepers--;
  pthread_mutex_unlock(&pool->mutex);
  return atomic_load(&pool->epoch);
}

static void *worker_main(void *arg) {
  struct worker *worker = arg;
  struct moe_pool *pool = worker->pool;
  uint64_t seen = 0;
  for (;;) {
    seen = await_job(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    work(pool, worker->index);
    if (atomic_fetch_sub(&pool->working, 1) == 1) {
      pthread_mutex_lock(&pool->mutex);
      pthread_cond_signal(&pool->done);
      pthread_mutex_unlock(&pool->mutex);
    }
  }
}

static void publish(struct moe_pool *pool) {
  atomic_fetch_add(&pool->epoch, 1);
  pthread_mutex_lock(&pool->mutex); /* a worker is either before its check or waiting */
  if (pool->sleepers > 0) pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
}

void moe_pool_run(struct moe_pool *pool, moe_task_fn fn, void *arg, int64_t tasks) {
  if (tasks <= 0) return;
  if (tasks == 1 || pool->started == 0) {
    for (int64_t i = 0; i < tasks; i++) fn(arg, i, 0);
    return;
  }
  pool->fn = fn;
  pool->arg = arg;
  pool->tasks = tasks;
  atomic_store(&pool->next, 0);
  atomic_store(&pool->working, pool->started);
  publish(pool);
  work(pool, 0);
  for (int i = 0; i < SPINS && atomic_load(&pool->working) > 0; i++) pause_cpu();
  if (atomic_load(&pool->working) > 0) {
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->working) > 0) pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
  }
}

moe_status moe_pool_create(moe_ctx *ctx, int32_t threads, struct moe_pool **out) {
  *out = NULL;
  struct moe_pool *pool = moe_alloc(ctx, sizeof *pool);
  if (pool == NULL) return MOE_MEMORY;
  pool->ctx = ctx;
  pool->threads = threads;
  pool->workers = moe_alloc_array(ctx, (size_t)threads, sizeof *pool->workers);
  if (pool->workers == NULL) {
    moe_release(ctx, pool);
    return MOE_MEMORY;
  }
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (int32_t i = 0; i < threads - 1; i++) {
    struct worker *worker = &pool->workers[i];
    *worker = (struct worker){.pool = pool, .index = i + 1};
    int err = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (err != 0) {
      moe_pool_destroy(pool);
      return moe_fail_errno(ctx, MOE_MEMORY, err, "cannot start compute thread %d of %d", i + 2,
                            threads);
    }
    pool->started++;
  }
  *out = pool;
  return MOE_OK;
}

void moe_pool_destroy(struct moe_pool *pool) {
  if (pool == NULL) return;
  atomic_store(&pool->stop, 1);
  publish(pool);
  for (int32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->mutex);
  moe_release(pool->ctx, pool->workers);
  moe_release(pool->ctx, pool);
}

int32_t moe_pool_threads(const struct moe_pool *pool) { return pool->threads; }
