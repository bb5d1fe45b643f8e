/* Samples: what an epoch holds, the split, exact continuation at any cursor, blending of files. Ids
 * count up through each file, so an id tells its place. */
#include <errno.h>
#include <sys/stat.h>

#include "token_files.h"

enum { DOCS = 23, TOKENS = 241 };
static const int32_t lengths[DOCS] = {1, 7,  40, 3, 0,  12, 5,  5, 5,  30, 2, 0,
                                      9, 11, 1,  1, 17, 4,  26, 8, 19, 22, 13};

static int document_begins[TOKENS + 1], document_ends[TOKENS + 1]; /* whether a token does */

static void mark_documents(void) {
  int at = 0;
  for (int d = 0; d < DOCS; d++) {
    if (lengths[d] == 0) continue;
    document_begins[at] = 1;
    at += lengths[d];
    document_ends[at - 1] = 1;
  }
  assert_int_equal(at, TOKENS);
}

static moe_source_config sources[8];

static moe_loader_config one_source(const char *prefix, int32_t seq) {
  moe_loader_config config;
  moe_loader_config_init(&config);
  moe_source_config_init(&sources[0]);
  sources[0].prefix = prefix;
  config.sources = sources;
  config.n_sources = 1;
  config.seq = seq;
  config.seed = 42;
  return config;
}

static moe_loader *make_loader(struct world *w, const moe_loader_config *config) {
  moe_loader *loader;
  OK(w->ctx, moe_loader_create(w->ctx, config, &loader));
  return loader;
}

static void test_in_order(void **state) {
  struct world *w = *state;
  int32_t tokens[30 * 8], labels[30 * 8];
  write_counting(w->ctx, w->prefix, 0, lengths, DOCS);
  moe_loader_config config = one_source(w->prefix, 8);
  config.shuffle = 0;
  config.mask_id = 9;
  moe_loader *loader = make_loader(w, &config);
  assert_int_equal(moe_loader_epoch_samples(loader), 30);
  OK(w->ctx, moe_loader_read(loader, 0, 30, tokens, labels));
  for (int i = 0; i < 240; i++) {
    assert_int_equal(tokens[i], i);
    assert_int_equal(labels[i], i + 1 == 9 ? -1 : i + 1);
  }
  OK(w->ctx, moe_loader_read(loader, 31, 1, tokens, labels)); /* the next epoch is the same */
  assert_int_equal(tokens[0], 8);
  assert_int_equal(labels[0], -1);
  moe_loader_destroy(loader);
}

/* Every token is an input once and a label once in an epoch (but the first and last of it), and
 * inside of a sample documents stay whole and in order. */
static void check_epoch(const int32_t *tokens, const int32_t *labels, int64_t samples,
                        int32_t seq) {
  int input[TOKENS] = {0}, label[TOKENS] = {0}, inputs = 0, only_label = 0;
  for (int64_t i = 0; i < samples * seq; i++) {
    assert_in_range(tokens[i], 0, TOKENS - 1);
    assert_in_range(labels[i], 0, TOKENS - 1);
    if (i % seq < seq - 1) assert_int_equal(tokens[i + 1], labels[i]);
    if (document_ends[tokens[i]])
      assert_true(document_begins[labels[i]]);
    else
      assert_int_equal(labels[i], tokens[i] + 1);
    assert_int_equal(input[tokens[i]]++, 0);
    assert_int_equal(label[labels[i]]++, 0);
    inputs++;
  }
  assert_int_equal(inputs, samples * seq);
  for (int i = 0; i < TOKENS; i++) only_label += label[i] && !input[i];
  assert_int_equal(only_label, 1); /* the windows hang together in one chain */
}

static void test_epochs(void **state) {
  struct world *w = *state;
  static const int32_t seqs[] = {1, 2, 3, 8, 16, 37, 60, 100, 240};
  static int32_t tokens[2][TOKENS], labels[2][TOKENS];
  mark_documents();
  write_counting(w->ctx, w->prefix, 0, lengths, DOCS);
  for (size_t k = 0; k < sizeof seqs / sizeof *seqs; k++) {
    int32_t S = seqs[k];
    moe_loader_config config = one_source(w->prefix, S);
    moe_loader *loader = make_loader(w, &config);
    int64_t n = moe_loader_epoch_samples(loader);
    assert_int_equal(n, (TOKENS - 1) / S);
    for (int64_t epoch = 0; epoch < 4; epoch++) {
      int32_t *t = tokens[epoch & 1], *l = labels[epoch & 1];
      OK(w->ctx, moe_loader_read(loader, epoch * n, n, t, l));
      check_epoch(t, l, n, S);
      if (epoch) assert_memory_not_equal(tokens[0], tokens[1], (size_t)(n * S) * sizeof *t);
    }
    config.seed = 43;
    moe_loader *other = make_loader(w, &config);
    OK(w->ctx, moe_loader_read(loader, 0, n, tokens[0], labels[0]));
    OK(w->ctx, moe_loader_read(other, 0, n, tokens[1], labels[1]));
    check_epoch(tokens[1], labels[1], n, S);
    assert_memory_not_equal(tokens[0], tokens[1], (size_t)(n * S) * sizeof **tokens);
    moe_loader_destroy(loader);
    moe_loader_destroy(other);
  }
}

/* One document: its windows still come in another order each epoch. */
static void test_one_document(void **state) {
  struct world *w = *state;
  int32_t tokens[2][100], labels[100], seen[100] = {0};
  write_counting(w->ctx, w->prefix, 0, (int32_t[]){101}, 1);
  moe_loader_config config = one_source(w->prefix, 4);
  moe_loader *loader = make_loader(w, &config);
  for (int e = 0; e < 2; e++) OK(w->ctx, moe_loader_read(loader, 25 * e, 25, tokens[e], labels));
  assert_memory_not_equal(tokens[0], tokens[1], sizeof tokens[0]);
  for (int i = 0; i < 100; i++) assert_int_equal(seen[tokens[1][i]]++, 0);
  moe_loader_destroy(loader);
}

/* Documents of several sequences that lie out of order in the .bin: the stream follows the index.
 */
static void test_sequences_out_of_order(void **state) {
  struct world *w = *state;
  unsigned char idx[300];
  const uint8_t bin[] = {5, 6, 7, 8, 0, 1, 99, 2, 3, 4, 9};
  int32_t tokens[9], labels[9], seen[10] = {0};
  size_t n = make_index(&(struct index_text){1, 5, 4, (int32_t[]){2, 3, 0, 4, 1},
                                             (int64_t[]){4, 7, 1, 0, 10}, (int64_t[]){0, 2, 4, 5}},
                        idx);
  write_file(w->prefix, ".idx", idx, n);
  write_file(w->prefix, ".bin", bin, sizeof bin);
  moe_loader_config config = one_source(w->prefix, 9);
  config.shuffle = 0;
  moe_loader *loader = make_loader(w, &config);
  OK(w->ctx, moe_loader_read(loader, 0, 1, tokens, labels));
  for (int i = 0; i < 9; i++) assert_int_equal(tokens[i], i), assert_int_equal(labels[i], i + 1);
  moe_loader_destroy(loader);
  config.shuffle = 1; /* three documents: 0..4, 5..8, 9 */
  loader = make_loader(w, &config);
  for (int epoch = 0; epoch < 12; epoch++) {
    OK(w->ctx, moe_loader_read(loader, epoch, 1, tokens, labels));
    for (int i = 0; i < 9; i++)
      if (tokens[i] != 4 && tokens[i] < 8) assert_int_equal(labels[i], tokens[i] + 1);
    seen[tokens[0]]++;
  }
  assert_true(seen[0] && seen[5] && seen[9]); /* each document came first in some epoch */
  assert_int_equal(seen[0] + seen[5] + seen[9], 12);
  moe_loader_destroy(loader);
}

static void blend_of_three(struct world *w, char prefixes[3][320], moe_loader_config *config) {
  static const int32_t small[] = {5, 6}, middle[] = {9, 9, 9, 9, 9, 9, 9};
  const int32_t *const docs[3] = {lengths, small, middle};
  const int counts[3] = {DOCS, 2, 7};
  for (int i = 0; i < 3; i++) {
    snprintf(prefixes[i], sizeof prefixes[i], "%s-%d", w->prefix, i);
    write_counting(w->ctx, prefixes[i], 1000 * i, docs[i], counts[i]);
  }
  *config = one_source(prefixes[0], 4);
  for (int i = 0; i < 3; i++) {
    moe_source_config_init(&sources[i]);
    sources[i].prefix = prefixes[i];
    sources[i].weight = (const double[]){0.5, 0.3, 0.2}[i];
  }
  config->n_sources = 3;
}

/* Any cut of the order into reads, by any loader, gives the same samples. */
static void test_continues_at_any_cursor(void **state) {
  struct world *w = *state;
  enum { N = 400, S = 4 };
  static int32_t tokens[N * S], labels[N * S], t[N * S], l[N * S];
  char prefixes[3][320];
  moe_loader_config config;
  blend_of_three(w, prefixes, &config);
  moe_loader *loader = make_loader(w, &config);
  OK(w->ctx, moe_loader_read(loader, 0, N, tokens, labels));
  struct moe_rng_key key = moe_rng_key(1, "cursors");
  for (uint64_t i = 0; i < 300; i++) {
    uint64_t r = moe_rng_u64(key, i);
    int64_t first = (int64_t)(r % N), count = (int64_t)((r >> 32) % (uint64_t)(N - first));
    moe_loader *fresh = i % 10 ? NULL : make_loader(w, &config);
    OK(w->ctx, moe_loader_read(fresh ? fresh : loader, first, count, t, l));
    assert_memory_equal(t, tokens + first * S, (size_t)(count * S) * sizeof *t);
    assert_memory_equal(l, labels + first * S, (size_t)(count * S) * sizeof *l);
    moe_loader_destroy(fresh);
  }
  for (int64_t dp = 1; dp <= 8; dp *= 2) { /* each rank with a loader of its own */
    moe_loader *ranks[8];
    for (int64_t r = 0; r < dp; r++) ranks[r] = make_loader(w, &config);
    for (int64_t cursor = 0; cursor < N; cursor += 16)
      for (int64_t r = 0; r < dp; r++) {
        int64_t from = cursor + r * (16 / dp);
        OK(w->ctx, moe_loader_read(ranks[r], from, 16 / dp, t + from * S, l + from * S));
      }
    assert_memory_equal(t, tokens, sizeof t);
    assert_memory_equal(l, labels, sizeof l);
    for (int64_t r = 0; r < dp; r++) moe_loader_destroy(ranks[r]);
  }
  moe_loader_destroy(loader);
}

/* The weights hold, and a small source goes through more epochs: each as often as the others. */
static void test_blend_of_files(void **state) {
  struct world *w = *state;
  enum { N = 1000, S = 4 };
  static int32_t tokens[N * S], labels[N * S];
  char prefixes[3][320];
  moe_loader_config config;
  int drawn[3] = {0}, heads[11] = {0};
  blend_of_three(w, prefixes, &config);
  moe_loader *loader = make_loader(w, &config);
  assert_int_equal(moe_loader_epoch_samples(loader), 60 + 2 + 15);
  OK(w->ctx, moe_loader_read(loader, 0, N, tokens, labels));
  for (int i = 0; i < N; i++) {
    int source = tokens[i * S] / 1000;
    drawn[source]++;
    if (source == 1) heads[tokens[i * S] - 1000]++;
    for (int s = 0; s < S; s++) {
      assert_int_equal(tokens[i * S + s] / 1000, source);
      assert_int_equal(labels[i * S + s] / 1000, source);
    }
    for (int k = 0; k < 3; k++) assert_true(fabs(drawn[k] - sources[k].weight * (i + 1)) <= 1);
  }
  assert_int_equal(drawn[0], 500);
  assert_int_equal(drawn[1], 300);
  assert_int_equal(drawn[2], 200);
  /* 150 epochs of documents 0..4 and 5..10: windows begin at 0 and 4, or at 5 and 9. */
  assert_int_equal(heads[0], heads[4]);
  assert_int_equal(heads[5], heads[9]);
  assert_int_equal(heads[0] + heads[5], 150);
  assert_true(heads[0] > 40 && heads[5] > 40);
  moe_loader_destroy(loader);
}

/* The order is part of every checkpoint's cursor: no version may change it. */
static void test_order_never_changes(void **state) {
  struct world *w = *state;
  static const int32_t want[10] = {72, 1005, 2048, 99, 17, 1004, 198, 2025, 1000, 77};
  int32_t tokens[4 * 200], labels[4 * 200];
  char prefixes[3][320];
  moe_loader_config config;
  blend_of_three(w, prefixes, &config);
  moe_loader *loader = make_loader(w, &config);
  OK(w->ctx, moe_loader_read(loader, 0, 200, tokens, labels));
  for (int i = 0; i < 10; i++) assert_int_equal(tokens[4 * (i < 5 ? i : 190 + i)], want[i]);
  moe_loader_destroy(loader);
}

static void test_read_does_not_allocate(void **state) {
  struct world *w = *state;
  static int32_t tokens[256], labels[256];
  char prefixes[3][320];
  moe_loader_config config;
  blend_of_three(w, prefixes, &config);
  moe_loader *loader = make_loader(w, &config);
  uint64_t count = moe_ctx_alloc_count(w->ctx);
  for (int64_t i = 0; i < 50; i++) OK(w->ctx, moe_loader_read(loader, i * 64, 64, tokens, labels));
  assert_int_equal(moe_ctx_alloc_count(w->ctx), count);
  moe_loader_destroy(loader);
}

/* Which tokens a split holds, by its samples of one token and the label of the last. */
static void split_tokens(struct world *w, const char *prefix, int split, double fraction,
                         int shuffle, int *seen, int32_t *lowest) {
  int32_t token, label;
  moe_loader_config config = one_source(prefix, 1);
  config.split = split;
  config.valid_fraction = fraction;
  config.shuffle = shuffle;
  moe_loader *loader = make_loader(w, &config);
  int64_t n = moe_loader_epoch_samples(loader);
  *lowest = INT32_MAX;
  int32_t mine[TOKENS] = {0};
  for (int64_t i = 0; i < n; i++) {
    OK(w->ctx, moe_loader_read(loader, i, 1, &token, &label));
    mine[token] = mine[label] = 1;
    if (token < *lowest) *lowest = token;
    if (label < *lowest) *lowest = label;
  }
  for (int i = 0; i < TOKENS; i++) seen[i] += mine[i];
  moe_loader_destroy(loader);
}

static void test_split(void **state) {
  struct world *w = *state;
  static const double fractions[] = {0.004, 0.05, 0.1, 0.3, 0.5, 0.77, 0.99};
  static const int32_t whole[] = {TOKENS};
  for (int one = 0; one < 2; one++) {
    write_counting(w->ctx, w->prefix, 0, one ? whole : lengths, one ? 1 : DOCS);
    for (size_t k = 0; k < sizeof fractions / sizeof *fractions; k++) {
      for (int shuffle = 0; shuffle < 2; shuffle++) {
        int seen[TOKENS] = {0};
        int32_t train, valid, held = (int32_t)lround(fractions[k] * TOKENS);
        if (held < 2) continue; /* no sample: below */
        split_tokens(w, w->prefix, MOE_SPLIT_TRAIN, fractions[k], shuffle, seen, &train);
        split_tokens(w, w->prefix, MOE_SPLIT_VALID, fractions[k], shuffle, seen, &valid);
        for (int i = 0; i < TOKENS; i++) assert_int_equal(seen[i], 1);
        assert_int_equal(train, 0);
        assert_int_equal(valid, TOKENS - held);
      }
    }
  }
  moe_loader *loader;
  moe_loader_config config = one_source(w->prefix, 1);
  config.valid_fraction = 1e-9;
  config.split = MOE_SPLIT_VALID;
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID,
        "the validation split has 1 of 241 tokens, one sample needs 2");
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID, w->prefix);
  config.split = MOE_SPLIT_TRAIN;
  config.valid_fraction = 1 - 1e-9;
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID,
        "the training split has 1 of 241 tokens, one sample needs 2");
  config.valid_fraction = 0;
  config.seq = TOKENS;
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID,
        "has 241 of 241 tokens, one sample needs 242 (seq + 1)");
  config.seq = INT32_MAX;
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID, "needs 2147483648");
  write_counting(w->ctx, w->prefix, 0, (int32_t[]){1}, 1);
  config = one_source(w->prefix, 1);
  config.valid_fraction = 0.5;
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_INVALID,
        "1 token cannot be split");
}

static void test_wrong_config(void **state) {
  struct world *w = *state;
  moe_loader *loader;
  write_counting(w->ctx, w->prefix, 0, lengths, DOCS);
#define REFUSED(change, text)                                                 \
  do {                                                                        \
    moe_loader_config c = one_source(w->prefix, 4);                           \
    change;                                                                   \
    FAILS(w->ctx, moe_loader_create(w->ctx, &c, &loader), MOE_INVALID, text); \
    assert_null(loader);                                                      \
  } while (0)
  REFUSED(c.size = 8, "size is 8");
  REFUSED(c.n_sources = 0, "0 sources");
  REFUSED(c.sources = NULL, "sources");
  REFUSED(sources[0].size = 0, "sources[0]: size is 0");
  REFUSED(sources[0].prefix = NULL, "sources[0]: no prefix");
  REFUSED(sources[0].weight = 0, "sources[0]: the weight of");
  REFUSED(sources[0].weight = -1, "is -1, must be positive");
  REFUSED(sources[0].weight = NAN, "must be positive");
  REFUSED(sources[0].weight = INFINITY, "must be positive");
  REFUSED(c.seq = 0, "seq is 0");
  REFUSED(c.vocab = -1, "vocab is -1");
  REFUSED(c.valid_fraction = 1, "valid_fraction is 1");
  REFUSED(c.valid_fraction = -0.1, "valid_fraction is -0.1");
  REFUSED(c.valid_fraction = NAN, "valid_fraction is");
  REFUSED(c.split = 2, "split is 2");
  REFUSED(c.split = MOE_SPLIT_VALID, "valid_fraction is 0");
  REFUSED(c.mask_id = -2, "mask_id is -2");
  moe_loader_config config = one_source("/nowhere/data", 4);
  FAILS(w->ctx, moe_loader_create(w->ctx, &config, &loader), MOE_NOTFOUND, "/nowhere/data.idx");
  config = one_source(w->prefix, 4);
  loader = make_loader(w, &config);
  int32_t t[4], l[4];
  FAILS(w->ctx, moe_loader_read(loader, -1, 1, t, l), MOE_INVALID, "from -1");
  FAILS(w->ctx, moe_loader_read(loader, 0, -1, t, l), MOE_INVALID, "-1 samples");
  FAILS(w->ctx, moe_loader_read(loader, INT64_MAX, 1, t, l), MOE_INVALID, "cannot read 1");
  OK(w->ctx, moe_loader_read(loader, INT64_MAX - 1, 1, t, l));
  moe_loader_destroy(loader);
}

static void test_id_outside_the_vocabulary(void **state) {
  struct world *w = *state;
  static int32_t t[TOKENS], l[TOKENS];
  write_counting(w->ctx, w->prefix, 0, lengths, DOCS);
  moe_loader_config config = one_source(w->prefix, 8);
  config.shuffle = 0;
  config.vocab = 50; /* documents 0..2 hold 48 ids; 50 is token 2 of document 3 */
  moe_loader *loader = make_loader(w, &config);
  OK(w->ctx, moe_loader_read(loader, 0, 6, t, l));
  FAILS(w->ctx, moe_loader_read(loader, 6, 1, t, l), MOE_FORMAT,
        "data.bin: token 2 of sequence 3 is 50, ids must be below 50 (the vocabulary)");
  OK(w->ctx, moe_loader_read(loader, 0, 6, t, l)); /* usable after */
  moe_loader_destroy(loader);
}

/* With few descriptors allowed, and maps that stay few. */
static void test_a_thousand_small_files(void **state) {
  struct world *w = *state;
  enum { N = 1000, S = 8 };
  static char prefixes[N][320];
  static moe_source_config many[N];
  static int32_t tokens[2 * N * S], labels[2 * N * S], seen[N];
  struct rlimit old, few;
  for (int i = 0; i < N; i++) {
    snprintf(prefixes[i], sizeof prefixes[i], "%s-%d", w->prefix, i);
    unsigned char idx[100];
    int32_t ids[9];
    for (int k = 0; k < 9; k++) ids[k] = 10 * i + k;
    write_file(prefixes[i], ".bin", ids, sizeof ids);
    size_t n = make_index(
        &(struct index_text){4, 2, 3, (int32_t[]){4, 5}, (int64_t[]){0, 16}, (int64_t[]){0, 1, 2}},
        idx);
    write_file(prefixes[i], ".idx", idx, n);
    moe_source_config_init(&many[i]);
    many[i].prefix = prefixes[i];
  }
  moe_loader_config config = one_source(prefixes[0], S);
  config.sources = many;
  config.n_sources = N;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = old;
  few.rlim_cur = 32;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  moe_loader *loader = make_loader(w, &config);
  assert_int_equal(moe_loader_epoch_samples(loader), N);
  OK(w->ctx, moe_loader_read(loader, 0, 2 * N, tokens, labels));
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  for (int i = 0; i < 2 * N; i++) seen[tokens[i * S] / 10]++;
  for (int i = 0; i < N; i++) assert_int_equal(seen[i], 2); /* equal weights: each twice */
  moe_loader_destroy(loader);
}

/* Samples behind token 2^32 of a file whose .bin is mostly a hole. */
static void test_stream_past_32_bits(void **state) {
  struct world *w = *state;
  enum { S = 1000 };
  static int32_t tokens[S], labels[S];
  static unsigned char run[S + 1];
  unsigned char idx[200];
  char path[400];
  const int64_t L = INT32_MAX, window = 5000000, at = window * S;
  size_t n = make_index(&(struct index_text){1, 3, 4, (int32_t[]){INT32_MAX, INT32_MAX, INT32_MAX},
                                             (int64_t[]){0, L, 2 * L}, (int64_t[]){0, 1, 2, 3}},
                        idx);
  write_file(w->prefix, ".idx", idx, n);
  snprintf(path, sizeof path, "%s.bin", w->prefix);
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  for (int i = 0; i <= S; i++) run[i] = (unsigned char)(i % 251);
  assert_int_equal(ftruncate(fd, 3 * L), 0);
  assert_int_equal(pwrite(fd, run, sizeof run, at), sizeof run);
  close(fd);
  moe_loader_config config = one_source(w->prefix, S);
  config.shuffle = 0;
  moe_loader *loader = make_loader(w, &config);
  assert_int_equal(moe_loader_epoch_samples(loader), (3 * L - 1) / S);
  OK(w->ctx, moe_loader_read(loader, window, 1, tokens, labels));
  for (int i = 0; i < S; i++) {
    assert_int_equal(tokens[i], run[i]);
    assert_int_equal(labels[i], run[i + 1]);
  }
  OK(w->ctx, moe_loader_read(loader, window + 1, 1, tokens, labels));
  assert_int_equal(tokens[0], run[S]);
  assert_int_equal(labels[0], 0);
  moe_loader_destroy(loader);
}

static uint64_t fingerprint_of(struct world *w, const moe_loader_config *config) {
  moe_loader *loader = make_loader(w, config);
  uint64_t value = moe_loader_fingerprint(loader);
  moe_loader_destroy(loader);
  return value;
}

static void test_fingerprint(void **state) {
  struct world *w = *state;
  char moved[400];
  write_counting(w->ctx, w->prefix, 0, lengths, DOCS);
  snprintf(moved, sizeof moved, "%s-moved", w->prefix);
  write_counting(w->ctx, moved, 0, lengths, DOCS);
  moe_loader_config config = one_source(w->prefix, 8);
  uint64_t known = fingerprint_of(w, &config);
  assert_int_equal(fingerprint_of(w, &config), known);
  config.vocab = 1000; /* a check only */
  sources[0].prefix = moved;
  sources[0].weight = 3;
  assert_int_equal(fingerprint_of(w, &config), known);
#define CHANGES(change)                               \
  do {                                                \
    config = one_source(w->prefix, 8);                \
    change;                                           \
    assert_true(fingerprint_of(w, &config) != known); \
  } while (0)
  CHANGES(config.seq = 9);
  CHANGES(config.seed = 1);
  CHANGES(config.shuffle = 0);
  CHANGES(config.mask_id = 0);
  CHANGES(config.valid_fraction = 0.1);
  CHANGES((sources[1] = sources[0], config.n_sources = 2));
  CHANGES(write_counting(w->ctx, w->prefix, 1, lengths, DOCS));
  CHANGES(write_counting(w->ctx, w->prefix, 0, (int32_t[]){TOKENS}, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WORLD_TEST(test_in_order),
      WORLD_TEST(test_epochs),
      WORLD_TEST(test_one_document),
      WORLD_TEST(test_sequences_out_of_order),
      WORLD_TEST(test_continues_at_any_cursor),
      WORLD_TEST(test_blend_of_files),
      WORLD_TEST(test_order_never_changes),
      WORLD_TEST(test_read_does_not_allocate),
      WORLD_TEST(test_split),
      WORLD_TEST(test_wrong_config),
      WORLD_TEST(test_id_outside_the_vocabulary),
      WORLD_TEST(test_a_thousand_small_files),
      WORLD_TEST(test_stream_past_32_bits),
      WORLD_TEST(test_fingerprint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
