/* Tokenizers: raw bytes, Hugging Face tokenizer.json byte-level BPE, SentencePiece-style BPE with
 * byte fallback (Mixtral) from tokenizer.json. */
#ifndef MOELUA_TOKENIZER_H
#define MOELUA_TOKENIZER_H

#include "moelua/ctx.h"

MOE_BEGIN

typedef struct moe_tokenizer moe_tokenizer;

/* path "bytes" (or NULL): ids 0..255 are the bytes, 256 ends a document; else a tokenizer.json:
 * BPE with ByteLevel, Split, Metaspace or Digits pre-tokenizers and NFC and its kin, Prepend or
 * Replace normalizers. Anything else in it is MOE_UNSUPPORTED and named; its truncation and padding
 * are not applied. */
MOE_API moe_status moe_tokenizer_open(moe_ctx *ctx, const char *path, moe_tokenizer **out);
MOE_API void moe_tokenizer_close(moe_tokenizer *tokenizer);
MOE_API int64_t moe_tokenizer_vocab(const moe_tokenizer *tokenizer); /* 1 + largest id */
/* The id that ends a document; -1: none. A tokenizer.json does not say which it is: the first that
 * it has as a special token of <|endoftext|>, </s>, <|end_of_text|>, DeepSeek's end of sentence,
 * <eos>, <|eos|>, [EOS], <EOS>. */
MOE_API int32_t moe_tokenizer_eod(const moe_tokenizer *tokenizer);
/* Encodes UTF-8 text of at most 1 GiB. Each maximal ill-formed part counts as one U+FFFD, as Python
 * gives it to Hugging Face with errors="replace" ("bytes" keeps every byte). add_special: also the
 * tokens the file's post-processor adds (e.g. bos). *ids is owned by the tokenizer and valid until
 * its next call. MOE_UNSUPPORTED: a character the vocabulary cannot express. */
MOE_API moe_status moe_tokenizer_encode(moe_tokenizer *tokenizer, const char *text, size_t bytes,
                                        int32_t add_special, const int32_t **ids, int64_t *count);
/* Decodes; *text is NUL-terminated, owned by the tokenizer, valid until its next call. Ids outside
 * the vocabulary and unused ids are MOE_INVALID. Bytes that are not UTF-8 become U+FFFD, except
 * with "bytes". skip_special: leave special tokens out. */
MOE_API moe_status moe_tokenizer_decode(moe_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                        int32_t skip_special, const char **text, size_t *bytes);

MOE_END

#endif
