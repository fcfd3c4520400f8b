// Weights with the codes and scales of a file of ggml. src/twostroke/ops/stored_layout.py defines the layouts.
#pragma once
#include "twostroke/products/linear.h"
#include "twostroke/products/stored_shape.h"

namespace twostroke {

// A group in the form that every kernel takes: bytes (columns / 4, 64, 4) with code + 128; steps and minima (columns / sub, 64).
struct StoredGroup {
  uint8_t* bytes;
  float *steps, *minima;  // minima: NULL where there are none
  int64_t sub;
  bool fine;  // the value of StoredShape
};

constexpr int64_t kStoredBytes = kStoredGroup * kPanel, kStoredSteps = kStoredGroup / 16 * kPanel;
constexpr int64_t kStoredRoom = kStoredBytes + 2 * kStoredSteps * 4;  // bytes of a StoredGroup's memory

// Unpacks `columns` columns of a packed panel, from a group's beginning on. room: kStoredRoom bytes, aligned to 64 bytes.
StoredGroup unpack_stored(int32_t kind, const uint8_t* packed, int64_t columns, uint8_t* room);

// Adds one group to sums (rows, 64), as stored_layout.py defines. It takes 1..kTileRows rows, and computes each in the same way. Levels
// that multiply stored codes directly do not have it.
void multiply_stored(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t rows, float* sums);

// Levels that multiply stored codes directly have the functions below. This many rows are multiplied by a panel at once:
constexpr int64_t kStoredFewRows = kLevel.stored_few_rows;

// Adds one group to the same sums, for any number of rows in all. Codes of less than a byte are unpacked to bytes once for all rows: at AVX-512
// always, at AVX2 from kTallRows rows on.
constexpr int64_t kTallRows = 20;
void multiply_stored_rows(int32_t kind, const Group& group, const RowSets& sets);

// Computes the same sums of a whole panel for 1..kStoredFewRows rows, without a copy. The panel's data is read once, in its stored form.
TileKernel stored_few_rows(int32_t kind, int64_t rows, bool in_turn);

// -8 times the sum of the rounded activations of one step. There are 1, 2, 4 or 8 parts, too few for vectors.
TS_INLINE int32_t eights_of(const int32_t* corrections, int64_t parts) {
  int32_t eights = corrections[0];
  _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
  for (int64_t i = 1; i < parts; ++i) eights += corrections[i];
  return eights;
}

// The first row's scale. For a fine kind it belongs to the step that begins at column `at` of a group, for others to the group. The scales
// of the other rows follow it.
TS_INLINE const float* fine_scales(const TileRows& x, const Group& group, int64_t at) {
  return x.scales + (group.first + at) / kFineColumns * x.pair_stride;
}
TS_INLINE const float* group_scales(const TileRows& x, const Group& group) { return x.scales + group.index * x.pair_stride; }

// Converts the bits of a finite float16 to float32, exactly.
TS_INLINE float f16_to_f32(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13, sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  float value;
  memcpy(&value, &magnitude, 4);
  value *= 0x1p112f;
  const uint32_t signed_bits = float_bits(value) | sign;
  memcpy(&value, &signed_bits, 4);
  return value;
}

}  // namespace twostroke
