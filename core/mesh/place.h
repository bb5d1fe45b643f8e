/* Where this rank stands in both views: degrees and coordinates. Layers take their local sizes from
 * it; on one process every degree is 1. */
#ifndef MOE_MESH_PLACE_H
#define MOE_MESH_PLACE_H

#include "base/base.h"

struct moe_coord {
  int32_t size, rank; /* 0 <= rank < size */
};

/* Largest tp and cp (train/config_check_split.c refuses more): layers list their members. */
enum { MOE_AXIS_MOST = 1024 };

struct moe_place {
  struct moe_coord tp, cp, dp, pp; /* attention view */
  struct moe_coord etp, ep, edp;   /* MoE view */
};

/* The even part of n that a coordinate owns; n divides (checked with the layout). */
static inline int64_t moe_part_count(int64_t n, struct moe_coord axis) { return n / axis.size; }
static inline int64_t moe_part_start(int64_t n, struct moe_coord axis) {
  return n / axis.size * axis.rank;
}

#endif
