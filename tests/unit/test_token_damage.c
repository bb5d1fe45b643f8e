/* Random damage to an index: refused or read, no crash. */
#include "token_files.h"

/* Damaged indices are refused or read, never followed out of the files. */
static void try_damaged(struct world *w, int64_t *opened) {
  static int32_t ids[64];
  moe_tokens *tokens;
  moe_tokens_info info = {.size = sizeof info};
  if (moe_tokens_open(w->ctx, w->prefix, &tokens) != MOE_OK) {
    assert_null(tokens);
    assert_non_null(strstr(moe_ctx_error(w->ctx), w->prefix));
    return;
  }
  ++*opened;
  OK(w->ctx, moe_tokens_get_info(tokens, &info));
  moe_status status = moe_tokens_verify(tokens, 0, &info);
  assert_true(status == MOE_OK || status == MOE_FORMAT);
  moe_tokens_close(tokens);
  moe_source_config source;
  moe_loader_config config;
  moe_loader *loader;
  moe_source_config_init(&source);
  source.prefix = w->prefix;
  moe_loader_config_init(&config);
  config.sources = &source;
  config.n_sources = 1;
  config.seq = 5;
  if (moe_loader_create(w->ctx, &config, &loader) != MOE_OK) return;
  for (int64_t i = 0; i < 6; i++) {
    status = moe_loader_read(loader, i, 1, ids, ids + 32);
    assert_true(status == MOE_OK || status == MOE_FORMAT);
  }
  moe_loader_destroy(loader);
}

static void test_random_damage(void **state) {
  struct world *w = *state;
  enum { N = 6, ROUNDS = 12000 };
  const int32_t lengths[N] = {3, 1, 0, 9, 4, 2};
  const int64_t offsets[N] = {0, 6, 8, 8, 26, 34}, documents[] = {0, 1, 1, 4, 6};
  uint16_t bin[20];
  unsigned char good[300], idx[300];
  struct moe_rng_key key = moe_rng_key(11, "damage");
  uint64_t draw = 0;
  int64_t opened = 0;
  for (int i = 0; i < 20; i++) bin[i] = (uint16_t)(i * 3000);
  size_t n = make_index(&(struct index_text){8, N, 5, lengths, offsets, documents}, good);
  write_file(w->prefix, ".bin", bin, sizeof bin);
  for (int round = 0; round < ROUNDS; round++) {
    size_t bytes = n;
    memcpy(idx, good, n);
    for (uint64_t flips = moe_rng_u64(key, draw++) % 4; flips > 0; flips--) {
      uint64_t r = moe_rng_u64(key, draw++);
      size_t at = (r >> 16) % n;
      idx[at] = r & 1 ? (unsigned char)(r >> 8) : (unsigned char)(idx[at] ^ 1u << (r >> 8) % 8);
    }
    if (moe_rng_u64(key, draw++) % 8 == 0) bytes = moe_rng_u64(key, draw++) % (n + 1);
    write_file(w->prefix, ".idx", idx, bytes);
    try_damaged(w, &opened);
  }
  assert_true(opened > ROUNDS / 20 && opened < ROUNDS); /* both ways were taken */
}

int main(void) {
  const struct CMUnitTest tests[] = {WORLD_TEST(test_random_damage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
