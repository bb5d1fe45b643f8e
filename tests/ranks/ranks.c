#include "ranks.h"

static int failures;

int ranks_threads(void) {
  const char *wanted = getenv("MOELUA_TEST_THREADS");
  int threads = wanted ? atoi(wanted) : 1;
  return threads > 1 ? threads : 1;
}

void ranks_words(const char *words, const struct ranks_word *list, size_t n,
                 bool (*text)(void *arg, const char *key, char *value), void *arg) {
  char copy[256], *rest = copy;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
    char *value = strchr(word, '=');
    size_t i = 0;
    if (value) *value++ = 0;
    if (value && text && text(arg, word, value)) continue;
    while (i < n && strcmp(list[i].key, word)) i++;
    if (!value || i == n) {
      fprintf(stderr, "unknown word \"%s\" in \"%s\"\n", word, words);
      exit(1);
    }
    *list[i].value = atoi(value);
  }
}

moe_ctx *ranks_open(void) {
  moe_ctx_options options;
  moe_ctx *ctx;
  moe_ctx_options_init(&options);
  options.threads = ranks_threads();
  if (moe_ctx_create(&options, &ctx) != MOE_OK) exit(1);
  MUST(ctx, moe_ctx_join_mpi(ctx, NULL));
  return ctx;
}

int ranks_close(moe_ctx *ctx) {
  struct moe_world *world;
  struct moe_comm *all;
  MUST(ctx, moe_ctx_world(ctx, &world));
  int32_t *ranks = calloc((size_t)world->size, sizeof *ranks), sum = failures;
  if (ranks == NULL) exit(1);
  for (int32_t i = 0; i < world->size; i++) ranks[i] = i;
  MUST(ctx, moe_comm_get(world, ranks, world->size, &all));
  MUST(ctx, moe_all_reduce((struct moe_group){all, 0}, NULL, &sum, 1, MOE_I32, MOE_SUM, NULL));
  free(ranks);
  moe_ctx_destroy(ctx);
  return sum > 0;
}

void ranks_fail(const char *file, int line, const char *text) {
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
  failures++;
}

void ranks_must(moe_ctx *ctx, moe_status status, const char *file, int line) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, moe_status_name(status), moe_ctx_error(ctx));
  exit(1); /* mpirun ends the others */
}
