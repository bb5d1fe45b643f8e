/* The entries of the CPU table that do not depend on the instruction set. */
#ifndef MOE_KERNELS_CPU_HOST_STREAM_H
#define MOE_KERNELS_CPU_HOST_STREAM_H

#include "kernels/cpu/cpu.h"

void *moe_cpu_mem_alloc(moe_ctx *ctx, size_t bytes);
void moe_cpu_mem_release(moe_ctx *ctx, void *p, size_t bytes);
moe_status moe_cpu_stream_create(moe_ctx *ctx, struct moe_stream **out);
void moe_cpu_stream_destroy(struct moe_stream *s);
moe_status moe_cpu_stream_sync(struct moe_stream *s);
moe_status moe_cpu_event_create(moe_ctx *ctx, struct moe_event **out);
void moe_cpu_event_destroy(struct moe_event *e);
void moe_cpu_event_record(struct moe_stream *s, struct moe_event *e);
void moe_cpu_event_wait(struct moe_stream *s, struct moe_event *e);
void moe_cpu_copy(struct moe_stream *s, void *dst, const void *src, size_t bytes);
void moe_cpu_fill(struct moe_stream *s, void *dst, uint8_t byte, size_t bytes);

#endif
