// Reads blocks of ggml's files as codes and scales, 256 columns of one row at a time. weights/gguf/blocks.py defines the result. Source:
// ggml-common.h and ggml-quants.c of llama.cpp.
#pragma once
#include <stdint.h>
#include <string.h>

#include "twostroke/products/stored_shape.h"

namespace twostroke {

// The numbers of ggml's types.
enum BlockType {
  kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIQ4_NL = 20,
  kIQ4_XS = 23, kMXFP4 = 39, kNVFP4 = 40,
};

// elements, bytes: the sizes of a block. offset: the excess of the codes, which are all below `codes`. units: 256 divided by the columns
// that share a multiplier; 0 where a block has a scale alone. minimum: whether a minimum is subtracted. floats: the columns that share a
// scale of float32, where codes are the bits of E2M1; else 0. iq4: whether codes are indices of kIQ4Codes.
struct BlockShape {
  int64_t elements, bytes, offset, codes, units;
  bool minimum;
  int64_t floats = 0;
  bool iq4 = false;
};

// elements is 0 for an unknown type.
constexpr BlockShape block_shape(int32_t type) {
  switch (type) {
    case kQ4_0: return {32, 18, 8, 16, 0, false};
    case kQ4_1: return {32, 20, 0, 16, 0, true};
    case kQ5_0: return {32, 22, 16, 32, 0, false};
    case kQ5_1: return {32, 24, 0, 32, 0, true};
    case kQ8_0: return {32, 34, 128, 256, 0, false};
    case kQ2_K: return {256, 84, 0, 4, 16, true};
    case kQ3_K: return {256, 110, 4, 8, 16, false};
    case kQ4_K: return {256, 144, 0, 16, 8, true};
    case kQ5_K: return {256, 176, 0, 32, 8, true};
    case kQ6_K: return {256, 210, 32, 64, 16, false};
    case kIQ4_NL: return {32, 18, 128, 256, 0, false, 0, true};
    case kIQ4_XS: return {256, 136, 128, 256, 8, false, 0, true};
    case kMXFP4: return {32, 17, 0, 16, 0, false, 32};
    case kNVFP4: return {64, 36, 0, 16, 0, false, 16};
    default: return {0, 0, 0, 0, 0, false};
  }
}

// 256 columns of a row. scales, least: float16 bits, one for each block. multipliers, minima: one for each unit. floats: the scales of
// E2M1.
struct RowOfGroup {
  uint8_t codes[kStoredGroup];
  uint16_t scales[kStoredGroup / 32], least[kStoredGroup / 32];
  int8_t multipliers[16];
  uint8_t minima[16];
  float floats[kStoredGroup / 16];
};

inline uint16_t half_at(const uint8_t* raw) {
  uint16_t bits;
  memcpy(&bits, raw, 2);
  return bits;
}

// Reads the fields of kBits bits of `count` bytes: first the lowest field of all bytes, then the next.
template <int kBits>
inline void fields_of(const uint8_t* raw, int64_t count, uint8_t* to) {
  for (int shift = 0; shift < 8; shift += kBits) {
    for (int64_t i = 0; i < count; ++i) *to++ = static_cast<uint8_t>(raw[i] >> shift & ((1 << kBits) - 1));
  }
}

// Adds bit i of raw, moved to `place`, to the codes. For each 32 bytes, it takes the bits of all bytes one after the other.
inline void add_bits(const uint8_t* raw, int place, uint8_t* codes) {
  for (int bit = 0; bit < 8; ++bit) {
    for (int64_t i = 0; i < 32; ++i) *codes++ |= static_cast<uint8_t>((raw[i] >> bit & 1) << place);
  }
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// Half of 2^(e - 127), because codes of E2M1 are doubled.
inline float half_power(uint8_t e) { return float_of(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23); }

// Half of a float with 4 bits of exponent, 3 of mantissa, and no sign. Its NaN counts as 0.
inline float half_ue4m3(uint8_t raw) {
  const uint32_t exponent = raw >> 3 & 15, mantissa = raw & 7;
  if (raw == 127) return 0;
  if (exponent == 0) return static_cast<float>(mantissa) * 0.0009765625f;
  return float_of((exponent + 119) << 23 | mantissa << 20);
}

// Reads `count` bytes of the bits of E2M1: low halves, then high halves. A negative zero becomes zero.
inline void e2m1_bits(const uint8_t* raw, int64_t count, uint8_t* to) {
  fields_of<4>(raw, count, to);
  for (int64_t i = 0; i < 2 * count; ++i) to[i] = to[i] == 8 ? 0 : to[i];
}

inline void block_mxfp4(const uint8_t* raw, int64_t index, RowOfGroup& row) {
  row.floats[index] = half_power(raw[0]);
  e2m1_bits(raw + 1, 16, row.codes + 32 * index);
}

inline void block_nvfp4(const uint8_t* raw, int64_t index, RowOfGroup& row) {
  for (int64_t part = 0; part < 4; ++part) {
    row.floats[4 * index + part] = half_ue4m3(raw[part]);
    e2m1_bits(raw + 4 + 8 * part, 8, row.codes + 64 * index + 16 * part);
  }
}

// Reads block number `index` of a type whose blocks have fewer than 256 columns.
inline void small_block(int32_t type, const uint8_t* raw, int64_t index, RowOfGroup& row) {
  if (type == kMXFP4) return block_mxfp4(raw, index, row);
  if (type == kNVFP4) return block_nvfp4(raw, index, row);
  uint8_t* codes = row.codes + 32 * index;
  row.scales[index] = half_at(raw);
  if (type == kIQ4_NL) {
    fields_of<4>(raw + 2, 16, codes);
    return;
  }
  if (type == kQ8_0) {
    for (int64_t i = 0; i < 32; ++i) codes[i] = raw[2 + i] ^ 0x80;
    return;
  }
  const bool minimum = type == kQ4_1 || type == kQ5_1;
  raw += minimum ? 4 : 2;
  if (minimum) row.least[index] = half_at(raw - 2) ^ 0x8000;  // the file's minimum is added, so its sign changes
  const bool five = type == kQ5_0 || type == kQ5_1;
  fields_of<4>(raw + (five ? 4 : 0), 16, codes);
  for (int64_t i = 0; five && i < 32; ++i) codes[i] |= static_cast<uint8_t>((raw[i / 8] >> i % 8 & 1) << 4);
}

// Reads 12 bytes with eight multipliers and eight minima of 6 bits.
inline void pairs_of_six_bits(const uint8_t* raw, RowOfGroup& row) {
  for (int64_t i = 0; i < 4; ++i) {
    const uint8_t first = raw[i], second = raw[4 + i], both = raw[8 + i];
    row.multipliers[i] = static_cast<int8_t>(first & 63);
    row.multipliers[4 + i] = static_cast<int8_t>((both & 15) | (first >> 2 & 48));
    row.minima[i] = second & 63;
    row.minima[4 + i] = static_cast<uint8_t>(both >> 4 | (second >> 2 & 48));
  }
}

inline void block_q2(const uint8_t* raw, RowOfGroup& row) {
  for (int64_t half = 0; half < 2; ++half) fields_of<2>(raw + 16 + 32 * half, 32, row.codes + 128 * half);
  for (int64_t i = 0; i < 16; ++i) row.multipliers[i] = static_cast<int8_t>(raw[i] & 15), row.minima[i] = raw[i] >> 4;
  row.scales[0] = half_at(raw + 80);
  row.least[0] = half_at(raw + 82);
}

inline void block_q3(const uint8_t* raw, RowOfGroup& row) {
  for (int64_t half = 0; half < 2; ++half) fields_of<2>(raw + 32 + 32 * half, 32, row.codes + 128 * half);
  add_bits(raw, 2, row.codes);
  uint8_t low[16], high[16];
  fields_of<4>(raw + 96, 8, low);
  fields_of<2>(raw + 104, 4, high);
  for (int64_t i = 0; i < 16; ++i) row.multipliers[i] = static_cast<int8_t>((low[i] | high[i] << 4) - 32);
  row.scales[0] = half_at(raw + 108);
}

// Reads a block of Q4_K, or of Q5_K, which has a fifth bit.
inline void block_q4_or_q5(bool five, const uint8_t* raw, RowOfGroup& row) {
  const uint8_t* low = raw + (five ? 48 : 16);
  for (int64_t quarter = 0; quarter < 4; ++quarter) fields_of<4>(low + 32 * quarter, 32, row.codes + 64 * quarter);
  if (five) add_bits(raw + 16, 4, row.codes);
  pairs_of_six_bits(raw + 4, row);
  row.scales[0] = half_at(raw);
  row.least[0] = half_at(raw + 2);
}

inline void block_q6(const uint8_t* raw, RowOfGroup& row) {
  uint8_t high[kStoredGroup];
  for (int64_t half = 0; half < 2; ++half) {
    fields_of<4>(raw + 64 * half, 64, row.codes + 128 * half);
    fields_of<2>(raw + 128 + 32 * half, 32, high + 128 * half);
  }
  for (int64_t i = 0; i < kStoredGroup; ++i) row.codes[i] |= static_cast<uint8_t>(high[i] << 4);
  memcpy(row.multipliers, raw + 192, 16);
  row.scales[0] = half_at(raw + 208);
}

inline void block_iq4_xs(const uint8_t* raw, RowOfGroup& row) {
  for (int64_t part = 0; part < 8; ++part) fields_of<4>(raw + 8 + 16 * part, 16, row.codes + 32 * part);
  for (int64_t i = 0; i < 8; ++i) {
    const uint8_t low = raw[4 + i / 2] >> i % 2 * 4 & 15, high = raw[2 + i / 4] >> i % 4 * 2 & 3;
    row.multipliers[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  row.scales[0] = half_at(raw);
}

inline void block_of_256(int32_t type, const uint8_t* raw, RowOfGroup& row) {
  switch (type) {
    case kQ2_K: return block_q2(raw, row);
    case kQ3_K: return block_q3(raw, row);
    case kQ4_K: return block_q4_or_q5(false, raw, row);
    case kQ5_K: return block_q4_or_q5(true, raw, row);
    case kIQ4_XS: return block_iq4_xs(raw, row);
    default: return block_q6(raw, row);
  }
}

}  // namespace twostroke
