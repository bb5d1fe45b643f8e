#include "base/arena.h"

#include "base/alloc.h"
#include "base/memcheck.h"

moe_status moe_arena_create(moe_ctx *ctx, const char *name, size_t capacity,
                            struct moe_arena *out) {
  void *base = moe_map(ctx, capacity);
  if (base == NULL) return MOE_MEMORY;
  moe_arena_wrap(ctx, name, base, capacity, out);
  out->owned = true;
  return MOE_OK;
}

void moe_arena_wrap(moe_ctx *ctx, const char *name, void *base, size_t capacity,
                    struct moe_arena *out) {
  *out = (struct moe_arena){.ctx = ctx, .base = base, .capacity = capacity, .name = name};
  moe_memory_gone(base, capacity);
}

void moe_arena_measure(moe_ctx *ctx, const char *name, struct moe_arena *out) {
  *out = (struct moe_arena){.ctx = ctx,
                            .base = (char *)(uintptr_t)MOE_ALIGN,
                            .capacity = SIZE_MAX / 4,
                            .name = name,
                            .measures = true};
}

void moe_arena_destroy(struct moe_arena *arena) {
  if (arena->owned) moe_unmap(arena->ctx, arena->base, arena->capacity);
  *arena = (struct moe_arena){0};
}

void *moe_arena_get(struct moe_arena *arena, size_t bytes) {
  size_t need = moe_round_up(bytes ? bytes : 1, MOE_ALIGN);
  if (need < bytes || need > arena->capacity - arena->used) {
    moe_fail(arena->ctx, MOE_INTERNAL, "arena %s: %zu bytes wanted, %zu of %zu left", arena->name,
             bytes, arena->capacity - arena->used, arena->capacity);
    return NULL;
  }
  void *p = arena->base + arena->used;
  arena->used += need;
  if (arena->used > arena->peak) arena->peak = arena->used;
  if (!arena->measures) moe_memory_fresh(p, arena->solid ? need : bytes);
  return p;
}

size_t moe_arena_mark(const struct moe_arena *arena) { return arena->used; }

void moe_arena_reset(struct moe_arena *arena, size_t mark) {
  if (!arena->measures) moe_memory_gone(arena->base + mark, arena->used - mark);
  arena->used = mark;
}
