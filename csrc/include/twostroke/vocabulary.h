// How a vocabulary finds tokens by their texts, and merges by their two tokens: open addressing in arrays that the caller owns.
#pragma once
#include <stdint.h>
#include <string.h>

#include "twostroke/vocabulary_abi.h"

namespace twostroke {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15ull;

inline uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 32) * kMix;
  return value ^ value >> 29;
}

inline uint64_t text_hash(const uint8_t* text, int64_t bytes) {
  uint64_t hash = static_cast<uint64_t>(bytes) * kMix;
  for (; bytes >= 8; text += 8, bytes -= 8) {
    uint64_t word;
    memcpy(&word, text, 8);
    hash = mixed(hash ^ word);
  }
  uint64_t rest = 0;
  for (int64_t i = 0; i < bytes; ++i) rest |= static_cast<uint64_t>(text[i]) << 8 * i;
  return mixed(hash ^ rest);
}

// Returns the slot of the token with this text, or the empty slot where it would stand. A slot is a pair: a part of the hash, and the id.
inline int32_t* text_slot(const ts_vocabulary& v, const uint8_t* text, int64_t bytes) {
  const uint64_t hash = text_hash(text, bytes), mask = static_cast<uint64_t>(v.num_slots) - 1;
  const int32_t tag = static_cast<int32_t>(hash >> 33);
  for (uint64_t place = hash & mask;; place = (place + 1) & mask) {
    int32_t* slot = v.slots + 2 * place;
    const int32_t id = slot[1];
    if (id < 0) {
      slot[0] = tag;
      return slot;
    }
    if (slot[0] == tag && v.sizes[id] == bytes && memcmp(v.texts + v.begins[id], text, static_cast<size_t>(bytes)) == 0) return slot;
  }
}

// Returns the id of the token with this text, or -1.
inline int32_t token_of(const ts_vocabulary& v, const uint8_t* text, int64_t bytes) {
  const uint64_t hash = text_hash(text, bytes), mask = static_cast<uint64_t>(v.num_slots) - 1;
  const int32_t tag = static_cast<int32_t>(hash >> 33);
  for (uint64_t place = hash & mask;; place = (place + 1) & mask) {
    const int32_t* slot = v.slots + 2 * place;
    const int32_t id = slot[1];
    if (id < 0) return -1;
    if (slot[0] == tag && v.sizes[id] == bytes && memcmp(v.texts + v.begins[id], text, static_cast<size_t>(bytes)) == 0) return id;
  }
}

// Returns the four numbers of the merge of these tokens, or the empty place where they would stand: left, right, rank, id.
inline int32_t* merge_slot(const ts_vocabulary& v, int32_t left, int32_t right) {
  const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  const uint64_t mask = static_cast<uint64_t>(v.num_merges) - 1;
  for (uint64_t place = mixed(pair * kMix) & mask;; place = (place + 1) & mask) {
    int32_t* slot = v.merges + 4 * place;
    if (slot[0] < 0 || (slot[0] == left && slot[1] == right)) return slot;
  }
}

}  // namespace twostroke
