/* A layout against one process: the same model, the same batches, ten steps; losses, norms and all
 * weights must be equal to 1e-5. */
#ifndef TEST_EQUAL_H
#define TEST_EQUAL_H

#include "ranks.h"

enum { EQUAL_BLOCKS = 8, EQUAL_SEQ = 32, EQUAL_BATCH = 8 };
enum { EQUAL_TOKENS = EQUAL_SEQ * EQUAL_BATCH, EQUAL_VOCAB = 43, EQUAL_STEPS = 10 };

/* A model, a layout and a batch. config points into the struct: it must not be copied. */
struct equal_setup {
  moe_block_config block[EQUAL_BLOCKS];
  moe_train_config config;
  char order[32];
  int32_t stage[EQUAL_BLOCKS]; /* blocks of each stage */
  int32_t tokens[EQUAL_TOKENS], labels[EQUAL_TOKENS]; /* of the global batch */
};

/* text: "key=value" words; see equal.c for the keys. Words it does not know end the program. */
void equal_init(struct equal_setup *s, const char *text);
/* This rank's share of the global batch: sequences of its dp coordinate. Returns the offset of its
 * first token. */
int64_t equal_share(moe_ctx *ctx, const struct equal_setup *s);
/* The words' layout on the ranks of ctx against one process in `alone`. */
void equal_compare(moe_ctx *ctx, moe_ctx *alone, const char *text);
/* Metrics that both must agree on; what: for messages. */
void equal_metrics(const char *what, const moe_step_metrics *a, const moe_step_metrics *b);
/* Largest difference of this rank's slice of a tensor (kind as in param_read) from the same slice
 * of `one`'s, over the largest value of the tensor. */
double equal_distance(moe_ctx *ctx, moe_trainer *one, moe_trainer *many, int64_t index,
                      int32_t kind);

#endif
