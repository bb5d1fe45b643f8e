/* Cutting text into the pieces that are merged on their own. Invariant: after every step the
 * pieces lie in order in the current text, do not overlap and are not empty. */
#ifndef MOE_DATA_PRETOKENIZE_H
#define MOE_DATA_PRETOKENIZE_H

#include "base/text.h"
#include "data/regex.h"

enum moe_cut_behavior {                   /* what happens with a match of the pattern */
                        MOE_CUT_ISOLATED, /* it is a piece */
                        MOE_CUT_REMOVED,
                        MOE_CUT_CONTIGUOUS, /* neighbouring matches are one piece */
                        MOE_CUT_WITH_PREVIOUS,
                        MOE_CUT_WITH_NEXT
};

enum moe_cut_kind {
  MOE_CUT_SPLIT,
  MOE_CUT_REWRITE, /* replaces spaces, puts a prefix in front */
  MOE_CUT_RUNS     /* cuts before each run of `with` */
};

enum moe_cut_prefix { MOE_PREFIX_NEVER, MOE_PREFIX_FIRST, MOE_PREFIX_ALWAYS };

struct moe_cut_step {
  enum moe_cut_kind kind;
  struct moe_regex *regex; /* owned */
  enum moe_cut_behavior behavior;
  bool invert;  /* what does not match is the match */
  char with[5]; /* the prefix, the replacement of spaces, the character of the runs */
  bool spaces;  /* replace spaces */
  enum moe_cut_prefix prefix;
};

struct moe_piece {
  size_t start, end;
};

struct moe_pieces {
  struct moe_piece *v;
  size_t n, cap;
};

enum { MOE_CUT_STEPS = 16 };

struct moe_cutter {
  moe_ctx *ctx;
  struct moe_cut_step steps[MOE_CUT_STEPS];
  size_t n;
  struct moe_pieces pieces[2];
  struct moe_text buffers[2];
};

struct moe_cut { /* a result; valid until the next run */
  const char *text;
  const struct moe_piece *pieces;
  size_t n;
};

void moe_cutter_init(moe_ctx *ctx, struct moe_cutter *cutter);
void moe_cutter_destroy(struct moe_cutter *cutter);
/* Valid UTF-8. first: the text is the beginning of what the user gave. */
moe_status moe_cutter_run(struct moe_cutter *cutter, const char *text, size_t bytes, bool first,
                          struct moe_cut *out);

#endif
