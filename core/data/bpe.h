/* Byte-pair merging of one piece of text. Invariant: the result is that of merging, again and
 * again, the adjacent pair of lowest rank, leftmost first (R. Sennrich et al., "Neural machine
 * translation of rare words with subword units", ACL 2016). */
#ifndef MOE_DATA_BPE_H
#define MOE_DATA_BPE_H

#include "data/ids.h"
#include "data/vocab.h"

struct moe_bpe_merge { /* left < 0: free slot */
  int32_t left, right, rank, id;
};

struct moe_bpe_node { /* a symbol of a long piece; prev, next: neighbours or -1 */
  int32_t id, prev, next;
};

struct moe_bpe_cached;

struct moe_bpe {
  moe_ctx *ctx;
  const struct moe_vocab *vocab;
  struct moe_bpe_merge *merges; /* open addressing by (left, right) */
  size_t n_slots;
  int32_t byte_ids[256]; /* byte_level: of the byte alphabet; byte_fallback: of "<0xNN>" */
  int32_t unk;           /* -1: none */
  bool byte_level, byte_fallback, fuse_unk, ignore_merges;
  struct moe_bpe_cached *cache; /* short pieces seen before; direct mapped, fixed size */
  struct moe_ids symbols;       /* scratch of the piece at hand */
  struct moe_text mapped;       /* the piece in the byte alphabet, for ignore_merges */
  struct moe_bpe_node *nodes;
  uint64_t *heap;
  size_t cap_nodes;
};

void moe_bpe_init(moe_ctx *ctx, const struct moe_vocab *vocab, struct moe_bpe *bpe);
void moe_bpe_destroy(struct moe_bpe *bpe);
/* Room for `merges` merges. Call once, before the first moe_bpe_add. */
moe_status moe_bpe_reserve(struct moe_bpe *bpe, size_t merges);
/* A pair that comes twice keeps its last rank, as in Hugging Face's loader. */
void moe_bpe_add(struct moe_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id);
/* Appends the ids of one piece of valid UTF-8. MOE_UNSUPPORTED where a character is not in the
 * vocabulary and there is no unknown token. */
moe_status moe_bpe_encode(struct moe_bpe *bpe, const char *piece, size_t bytes,
                          struct moe_ids *out);

/* The byte alphabet of byte-level vocabularies: the character of a byte, and back (-1: not in it).
 */
int32_t moe_byte_alphabet_char(uint8_t byte);
size_t moe_byte_alphabet_put(uint8_t byte, char *out); /* as UTF-8: 1 or 2 bytes, returned */
int32_t moe_byte_alphabet_byte(int32_t cp);

#endif
