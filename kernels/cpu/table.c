/* The CPU table of one instruction set. */
#include "kernels/cpu/ops.h"

#define MOE_STR_(x) #x
#define MOE_STR(x) MOE_STR_(x)

extern const struct moe_kernels MOE_FN(table);

const struct moe_kernels MOE_FN(table) = {
    .name = MOE_STR(MOE_ISA),
    .mem_alloc = moe_cpu_mem_alloc,
    .mem_release = moe_cpu_mem_release,
    .stream_create = moe_cpu_stream_create,
    .stream_destroy = moe_cpu_stream_destroy,
    .stream_sync = moe_cpu_stream_sync,
    .event_create = moe_cpu_event_create,
    .event_destroy = moe_cpu_event_destroy,
    .event_record = moe_cpu_event_record,
    .event_wait = moe_cpu_event_wait,
    .copy = moe_cpu_copy,
    .fill = moe_cpu_fill,
#define OP(op) .op = MOE_FN(op),
    MOE_CPU_OPS(OP)
#undef OP
};
