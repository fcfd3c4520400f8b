// The functions of a vocabulary with merges. They are a part of the C ABI (abi.h) with a header of its own: a library without them is whole,
// and Python then reads vocabularies in another way.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define TS_WORD_SCRATCH 13  // ts_vocabulary_encode: numbers of scratch for each piece

// A vocabulary with merges, in arrays that the caller owns and makes with -1 in sizes, slots and merges.
typedef struct {
  const uint8_t* texts;  // the texts of the tokens, UTF-8
  uint32_t* begins;      // (num_ids,) by id: where its text begins
  int32_t* sizes;        // (num_ids,) by id: the bytes of its text; -1 where no token has this id
  int64_t num_ids;
  int32_t* slots;     // (num_slots, 2): tokens by the hash of their texts
  int64_t num_slots;  // a power of two, more than there are tokens
  int32_t* merges;     // (num_merges, 4): left, right, rank and id of merges, by the hash of left and right
  int64_t num_merges;  // a power of two, more than there are merges
  int32_t bytes[256];  // the tokens that write one byte of a character without a token; -1 where there is none
  int32_t whole_words;  // 1: a word that is a token is this token, whatever its merges
} ts_vocabulary;

// Reads {"text": id, ...}. texts has room for `bytes` bytes, the others for `capacity` numbers; all are in the order of the JSON. Returns the
// number of tokens, or a status: TS_BAD_FORMAT where the JSON has another form.
int64_t ts_vocabulary_tokens(const uint8_t* json, int64_t bytes, uint8_t* texts, uint32_t* begins, int32_t* sizes, int32_t* ids,
                             int64_t capacity);
// Files the tokens that were read by id and by text. Returns TS_BAD_VALUE where two have the same text or id.
int32_t ts_vocabulary_index(const ts_vocabulary*, const uint32_t* begins, const int32_t* sizes, const int32_t* ids, int64_t count);
// Reads [["left", "right"], ...] or ["left right", ...]. Returns the number of merges, or a status: TS_BAD_FORMAT where the JSON has another
// form, TS_BAD_INDEX where a text is no token.
int64_t ts_vocabulary_merges(const ts_vocabulary*, const uint8_t* json, int64_t bytes);
// Returns the id of the token with this text, or -1.
int32_t ts_vocabulary_find(const ts_vocabulary*, const uint8_t* text, int64_t bytes);
// Encodes words. pieces: the bytes of their UTF-8; 256 ends a word; 257 is byte 1 and the end of a word; 258 + i is added[i]. scratch:
// (TS_WORD_SCRATCH * count,). out: (count,). Returns the number of ids, or a status. A character without a token and without
// tokens of its bytes is left out.
int64_t ts_vocabulary_encode(const ts_vocabulary*, const int32_t* pieces, int64_t count, const int32_t* added, int64_t num_added,
                             int32_t* scratch, int32_t* out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
