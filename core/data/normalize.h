/* The normalizer of a tokenizer.json: a list of steps over the whole text. */
#ifndef MOE_DATA_NORMALIZE_H
#define MOE_DATA_NORMALIZE_H

#include "base/text.h"

enum moe_normal_kind {
  MOE_NORMAL_NFC,
  MOE_NORMAL_NFD,
  MOE_NORMAL_NFKC,
  MOE_NORMAL_NFKD,
  MOE_NORMAL_PREPEND, /* `with` before a text that is not empty */
  MOE_NORMAL_REPLACE  /* every `find` by `with` */
};

struct moe_normal_step {
  enum moe_normal_kind kind;
  char *find, *with; /* owned */
  size_t n_find, n_with;
};

enum { MOE_NORMAL_STEPS = 16 };

struct moe_normal {
  moe_ctx *ctx;
  struct moe_normal_step steps[MOE_NORMAL_STEPS];
  size_t n;
  struct moe_text buffers[2];
};

void moe_normal_init(moe_ctx *ctx, struct moe_normal *normal);
void moe_normal_destroy(struct moe_normal *normal);
/* *text, *bytes: valid UTF-8 in; out it points to the text as it was or into the buffers, valid
 * until the next call. */
moe_status moe_normal_run(struct moe_normal *normal, const char **text, size_t *bytes);

#endif
