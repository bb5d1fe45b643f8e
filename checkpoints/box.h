/* Boxes of a tensor: the set algebra of slices. A box is (start, count) per dim, in the coordinates
 * of the whole tensor; its values lie row-major and contiguous in memory and in a data file. */
#ifndef MOE_CHECKPOINTS_BOX_H
#define MOE_CHECKPOINTS_BOX_H

#include "tensor/pack.h"

struct moe_box {
  int32_t dims;
  int64_t start[MOE_SLOT_DIMS], count[MOE_SLOT_DIMS];
};

static inline struct moe_box moe_box_of_slot(const struct moe_slot *slot) {
  struct moe_box box = {.dims = slot->dims};
  for (int32_t d = 0; d < slot->dims; d++)
    box.start[d] = slot->start[d], box.count[d] = slot->count[d];
  return box;
}
static inline struct moe_box moe_box_whole(int32_t dims, const int64_t *dim) {
  struct moe_box box = {.dims = dims};
  for (int32_t d = 0; d < dims; d++) box.count[d] = dim[d];
  return box;
}

int64_t moe_box_elements(const struct moe_box *box);
/* false, and *out is undefined, when they share no element. */
bool moe_box_intersect(const struct moe_box *a, const struct moe_box *b, struct moe_box *out);
bool moe_box_equal(const struct moe_box *a, const struct moe_box *b);
/* "(8:16, 0:64)": begin:end of each dim. */
void moe_box_text(const struct moe_box *box, char *text, size_t bytes);
enum { MOE_BOX_TEXT = MOE_SLOT_DIMS * 44 };

/* The first box of those that make up elements [*first, last) of a box's memory, and moves *first
 * behind it. At most 2 * dims - 1 of them do; false when none is left. */
bool moe_box_of_run(const struct moe_box *box, int64_t *first, int64_t last, struct moe_box *out);

/* Cuts a box into pieces of at most `limit` elements which follow each other in its memory. A cut
 * inside a row is at a multiple of MOE_DIGEST_SEGMENT of the whole tensor's row. */
struct moe_box_walk {
  struct moe_box box, piece;
  int32_t dim;    /* the dim that is cut; dims before it have count 1 in a piece */
  int64_t step;   /* of dim */
  int64_t offset; /* of the piece in the box's memory, elements */
  bool begun;
};
/* limit must be at least MOE_DIGEST_SEGMENT. */
void moe_box_walk_init(struct moe_box_walk *walk, const struct moe_box *box, int64_t limit);
/* The next piece is in walk->piece and walk->offset; false after the last. */
bool moe_box_walk_next(struct moe_box_walk *walk);

/* Runs of elements of `region` that are contiguous in the memory of both boxes, which hold it. */
struct moe_box_runs {
  struct moe_box a, b, region;
  int32_t dim;                  /* a run covers region's dims from here on */
  int64_t length;               /* of every run */
  int64_t index[MOE_SLOT_DIMS]; /* of the next run, within region */
  int64_t left;
  int64_t offset_a, offset_b; /* of the run that moe_box_runs_next found */
};
void moe_box_runs_init(struct moe_box_runs *runs, const struct moe_box *a, const struct moe_box *b,
                       const struct moe_box *region);
bool moe_box_runs_next(struct moe_box_runs *runs);

#endif
