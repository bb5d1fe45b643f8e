#include "data/bpe.h"

#include <xxhash.h>

#include "data/utf8.h"

/* Pieces up to LINEAR symbols are merged by scanning, longer ones with a heap: O(n log n). */
enum { LINEAR = 48, CACHE = 1 << 15, CACHE_BYTES = 23, CACHE_IDS = 8 };

struct moe_bpe_cached {
  uint8_t bytes, n; /* bytes 0: free */
  char piece[CACHE_BYTES];
  int32_t ids[CACHE_IDS];
};

void moe_bpe_init(moe_ctx *ctx, const struct moe_vocab *vocab, struct moe_bpe *bpe) {
  *bpe = (struct moe_bpe){.ctx = ctx, .vocab = vocab, .unk = -1, .symbols = {.ctx = ctx}};
  moe_text_init(ctx, &bpe->mapped);
  for (int b = 0; b < 256; b++) bpe->byte_ids[b] = -1;
}

void moe_bpe_destroy(struct moe_bpe *bpe) {
  moe_release(bpe->ctx, bpe->merges);
  moe_release(bpe->ctx, bpe->cache);
  moe_release(bpe->ctx, bpe->nodes);
  moe_release(bpe->ctx, bpe->heap);
  moe_ids_destroy(&bpe->symbols);
  moe_text_destroy(&bpe->mapped);
  moe_bpe_init(bpe->ctx, NULL, bpe);
}

moe_status moe_bpe_reserve(struct moe_bpe *bpe, size_t merges) {
  bpe->n_slots = 16;
  while (bpe->n_slots < 2 * merges) bpe->n_slots *= 2;
  bpe->merges = moe_alloc_array(bpe->ctx, bpe->n_slots, sizeof *bpe->merges);
  bpe->cache = moe_alloc_array(bpe->ctx, CACHE, sizeof *bpe->cache);
  if (bpe->merges == NULL || bpe->cache == NULL) return MOE_MEMORY;
  for (size_t i = 0; i < bpe->n_slots; i++) bpe->merges[i].left = -1;
  return MOE_OK;
}

/* The slot that holds the pair, or the free one where it belongs. */
static struct moe_bpe_merge *slot_of(const struct moe_bpe *bpe, int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  size_t mask = bpe->n_slots - 1;
  size_t slot = (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & mask;
  while (bpe->merges[slot].left >= 0 &&
         (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
    slot = (slot + 1) & mask;
  return &bpe->merges[slot];
}

void moe_bpe_add(struct moe_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id) {
  *slot_of(bpe, left, right) = (struct moe_bpe_merge){left, right, rank, id};
}

static const struct moe_bpe_merge *find(const struct moe_bpe *bpe, int32_t left, int32_t right) {
  const struct moe_bpe_merge *merge = slot_of(bpe, left, right);
  return merge->left < 0 ? NULL : merge;
}

int32_t moe_byte_alphabet_char(uint8_t byte) {
  if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
  if (byte <= 32) return 256 + byte;
  return byte == 173 ? 256 + 67 : 256 + 33 + (byte - 127);
}

size_t moe_byte_alphabet_put(uint8_t byte, char *out) {
  return moe_utf8_put(moe_byte_alphabet_char(byte), out);
}

int32_t moe_byte_alphabet_byte(int32_t cp) {
  if (cp < 256) return cp >= 0 && moe_byte_alphabet_char((uint8_t)cp) == cp ? cp : -1;
  int32_t n = cp - 256;
  if (n < 33) return n;
  return n < 67 ? 127 + n - 33 : n == 67 ? 173 : -1;
}

/* ---- from text to the first symbols ---- */

static moe_status unknown(struct moe_bpe *bpe, const char *s, size_t n) {
  size_t length;
  return moe_fail(bpe->ctx, MOE_UNSUPPORTED,
                  "the vocabulary has no entry for \"%.*s\" (U+%04X) and no unknown token", (int)n,
                  s, (unsigned)moe_utf8_get(s, &length));
}

static moe_status byte_symbols(struct moe_bpe *bpe, const char *s, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    int32_t id = bpe->byte_ids[(uint8_t)s[i]];
    if (id < 0 && bpe->unk < 0)
      return moe_fail(bpe->ctx, MOE_UNSUPPORTED,
                      "the vocabulary has no entry for byte 0x%02X and no unknown token",
                      (uint8_t)s[i]);
    bool fused = id < 0 && bpe->fuse_unk && i > 0 && bpe->byte_ids[(uint8_t)s[i - 1]] < 0;
    if (!fused) bpe->symbols.v[bpe->symbols.n++] = id < 0 ? bpe->unk : id;
  }
  return MOE_OK;
}

static moe_status char_symbols(struct moe_bpe *bpe, const char *s, size_t bytes) {
  struct moe_ids *out = &bpe->symbols;
  bool after_unk = false;
  for (size_t i = 0, n; i < bytes; i += n) {
    n = moe_utf8_length(s + i);
    int32_t id = moe_vocab_find(bpe->vocab, s + i, n);
    if (id < 0 && bpe->byte_fallback) {
      for (size_t k = 0; k < n; k++) out->v[out->n++] = bpe->byte_ids[(uint8_t)s[i + k]];
      continue;
    }
    if (id < 0 && bpe->unk < 0) return unknown(bpe, s + i, n);
    if (!(id < 0 && bpe->fuse_unk && after_unk)) out->v[out->n++] = id < 0 ? bpe->unk : id;
    after_unk = id < 0;
  }
  return MOE_OK;
}

/* ---- merging symbols in place ---- */

static void merge_by_scan(const struct moe_bpe *bpe, struct moe_ids *s) {
  const struct moe_bpe_merge *pair[LINEAR]; /* of symbols i and i+1 */
  for (size_t i = 0; i + 1 < s->n; i++) pair[i] = find(bpe, s->v[i], s->v[i + 1]);
  while (s->n > 1) {
    size_t best = s->n;
    for (size_t i = 0; i + 1 < s->n; i++)
      if (pair[i] && (best == s->n || pair[i]->rank < pair[best]->rank)) best = i;
    if (best == s->n) return;
    s->v[best] = pair[best]->id;
    s->n--;
    for (size_t i = best + 1; i < s->n; i++) s->v[i] = s->v[i + 1];
    for (size_t i = best; i + 1 < s->n; i++) pair[i] = pair[i + 1];
    if (best > 0) pair[best - 1] = find(bpe, s->v[best - 1], s->v[best]);
    if (best + 1 < s->n) pair[best] = find(bpe, s->v[best], s->v[best + 1]);
  }
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t value) {
  size_t i = (*n)++;
  for (; i > 0 && heap[(i - 1) / 2] > value; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = value;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n) {
  uint64_t top = heap[0], last = heap[--*n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < *n; i = child) {
    if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return top;
}

static moe_status nodes_reserve(struct moe_bpe *bpe, size_t n) {
  if (bpe->cap_nodes >= n) return MOE_OK;
  size_t cap = moe_round_up(n + n / 2, 1024);
  moe_release(bpe->ctx, bpe->nodes);
  moe_release(bpe->ctx, bpe->heap);
  bpe->cap_nodes = 0;
  bpe->nodes = moe_alloc_array(bpe->ctx, cap, sizeof *bpe->nodes);
  /* Every pair at the start, and two more for each of at most n-1 merges. */
  bpe->heap = moe_alloc_array(bpe->ctx, 3 * cap, sizeof *bpe->heap);
  if (bpe->nodes == NULL || bpe->heap == NULL) return MOE_MEMORY;
  bpe->cap_nodes = cap;
  return MOE_OK;
}

/* The pair that starts at node i, or NULL. */
static const struct moe_bpe_merge *pair_at(const struct moe_bpe *bpe, int32_t i) {
  const struct moe_bpe_node *node = &bpe->nodes[i];
  return node->id < 0 || node->next < 0 ? NULL : find(bpe, node->id, bpe->nodes[node->next].id);
}

static void push_pair(struct moe_bpe *bpe, size_t *n, int32_t i) {
  const struct moe_bpe_merge *merge = i < 0 ? NULL : pair_at(bpe, i);
  if (merge) heap_push(bpe->heap, n, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)i);
}

static moe_status merge_by_heap(struct moe_bpe *bpe, struct moe_ids *s) {
  MOE_TRY(nodes_reserve(bpe, s->n));
  struct moe_bpe_node *nodes = bpe->nodes;
  size_t n = 0;
  int32_t count = (int32_t)s->n;
  for (int32_t i = 0; i < count; i++)
    nodes[i] = (struct moe_bpe_node){s->v[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i < count; i++) push_pair(bpe, &n, i);
  while (n > 0) {
    uint64_t top = heap_pop(bpe->heap, &n);
    int32_t i = (int32_t)(uint32_t)top;
    const struct moe_bpe_merge *merge = pair_at(bpe, i);
    /* Ranks are unique, so an equal rank means that the pair is still the one pushed. */
    if (merge == NULL || (uint64_t)merge->rank != top >> 32) continue;
    int32_t gone = nodes[i].next;
    nodes[i].id = merge->id;
    nodes[i].next = nodes[gone].next;
    if (nodes[i].next >= 0) nodes[nodes[i].next].prev = i;
    nodes[gone].id = -1;
    push_pair(bpe, &n, nodes[i].prev);
    push_pair(bpe, &n, i);
  }
  s->n = 0;
  for (int32_t i = 0; i >= 0; i = nodes[i].next) s->v[s->n++] = nodes[i].id;
  return MOE_OK;
}

/* ---- one piece ---- */

/* The id of the piece as a whole, or -1. */
static int32_t whole(struct moe_bpe *bpe, const char *piece, size_t bytes) {
  if (!bpe->byte_level) return moe_vocab_find(bpe->vocab, piece, bytes);
  bpe->mapped.len = 0;
  for (size_t i = 0; i < bytes; i++) {
    char c[MOE_UTF8_MAX];
    moe_text_append(&bpe->mapped, c, moe_byte_alphabet_put((uint8_t)piece[i], c));
  }
  return bpe->mapped.failed ? -1 : moe_vocab_find(bpe->vocab, bpe->mapped.s, bpe->mapped.len);
}

static moe_status encode(struct moe_bpe *bpe, const char *piece, size_t bytes) {
  struct moe_ids *s = &bpe->symbols;
  s->n = 0;
  MOE_TRY(moe_ids_reserve(s, bytes));
  if (bpe->ignore_merges) {
    int32_t id = whole(bpe, piece, bytes);
    if (bpe->mapped.failed) return MOE_MEMORY;
    if (id >= 0) {
      s->v[s->n++] = id;
      return MOE_OK;
    }
  }
  MOE_TRY(bpe->byte_level ? byte_symbols(bpe, piece, bytes) : char_symbols(bpe, piece, bytes));
  if (s->n > LINEAR) return merge_by_heap(bpe, s);
  merge_by_scan(bpe, s);
  return MOE_OK;
}

moe_status moe_bpe_encode(struct moe_bpe *bpe, const char *piece, size_t bytes,
                          struct moe_ids *out) {
  if (bytes == 0) return MOE_OK;
  struct moe_bpe_cached *cached = NULL;
  if (bytes <= CACHE_BYTES) {
    cached = &bpe->cache[XXH3_64bits(piece, bytes) % CACHE];
    if (cached->bytes == bytes && memcmp(cached->piece, piece, bytes) == 0)
      return moe_ids_append(out, cached->ids, cached->n);
  }
  MOE_TRY(encode(bpe, piece, bytes));
  if (cached && bpe->symbols.n <= CACHE_IDS) {
    cached->bytes = (uint8_t)bytes;
    cached->n = (uint8_t)bpe->symbols.n;
    memcpy(cached->piece, piece, bytes);
    memcpy(cached->ids, bpe->symbols.v, bpe->symbols.n * sizeof(int32_t));
  }
  return moe_ids_append(out, bpe->symbols.v, bpe->symbols.n);
}
