// Rotates columns: each 64 columns are multiplied by the Hadamard matrix of order 64. Its element (i, j) is -1 where i and j share an odd
// number of bits, else 1. This spreads one large number over all 64, so that the others are rounded by a finer scale. H * H is 64 times the
// identity. Weights are multiplied by H / 64 when they are packed, and activations by H before they are rounded, so products do not change.
//
// rotated_columns of ops/rotation.py defines the order: additions and subtractions of floats that are 1, 2, 4, 8, 16 and then 32 apart. The
// bits are the same at every level.
#pragma once
#include <stdint.h>
#include <string.h>

#include <utility>

#include "twostroke/products/register_tiles.h"
#include "twostroke/products/unrolled.h"

namespace twostroke {

constexpr int64_t kRotatedColumns = 64;

// Replaces elements i and i + half of x (count, lanes) by their sum, and by the first minus the second.
inline void add_apart(float* x, int64_t count, int64_t half, int64_t lanes) {
  for (int64_t from = 0; from < count; from += 2 * half) {
    for (int64_t i = from * lanes; i < (from + half) * lanes; ++i) {
      const float a = x[i], b = x[i + half * lanes];
      x[i] = a + b;
      x[i + half * lanes] = a - b;
    }
  }
}

// Rotates x (64, lanes) in place. The lanes are rows, and one element of all rows lies together.
inline void rotate_lanes(float* x, int64_t lanes) {
  for (int64_t half = 1; half < kRotatedColumns; half *= 2) add_apart(x, kRotatedColumns, half, lanes);
}

constexpr int kRotatedLanes = kRegisterTiles.rotated_lanes;
constexpr int kRotatedVectors = kRotatedColumns / kRotatedLanes;
typedef float RotatedVector __attribute__((vector_size(kRotatedLanes * 4)));
typedef int32_t RotatedBits __attribute__((vector_size(kRotatedLanes * 4)));

// Adds and subtracts lanes that are `half` apart. Subtracting a number is adding it with the other sign.
template <int kHalf, int... kLane>
TS_INLINE void add_within(RotatedVector (&x)[kRotatedVectors], std::integer_sequence<int, kLane...>) {
  const RotatedBits signs = {((kLane & kHalf) != 0 ? INT32_MIN : 0)...};
  TS_UNROLL
  for (int v = 0; v < kRotatedVectors; ++v) {
    const RotatedVector others = __builtin_shufflevector(x[v], x[v], (kLane ^ kHalf)...);
    x[v] = others + reinterpret_cast<RotatedVector>(reinterpret_cast<RotatedBits>(x[v]) ^ signs);
  }
}

template <int kHalf>
TS_INLINE void add_across(RotatedVector (&x)[kRotatedVectors]) {
  constexpr int kApart = kHalf / kRotatedLanes;
  TS_UNROLL
  for (int v = 0; v < kRotatedVectors; ++v) {
    if ((v & kApart) != 0) continue;
    const RotatedVector a = x[v], b = x[v + kApart];
    x[v] = a + b;
    x[v + kApart] = a - b;
  }
}

template <int kHalf>
TS_INLINE void add_stage(RotatedVector (&x)[kRotatedVectors]) {
  if constexpr (kHalf < kRotatedLanes) {
    add_within<kHalf>(x, std::make_integer_sequence<int, kRotatedLanes>());
  } else {
    add_across<kHalf>(x);
  }
}

// Rotates 64 columns of one row; x and to may be the same.
TS_INLINE void rotate_step(const float* x, float* to) {
  RotatedVector vectors[kRotatedVectors];
  TS_UNROLL
  for (int v = 0; v < kRotatedVectors; ++v) memcpy(&vectors[v], x + v * kRotatedLanes, sizeof(RotatedVector));
  add_stage<1>(vectors);
  add_stage<2>(vectors);
  add_stage<4>(vectors);
  add_stage<8>(vectors);
  add_stage<16>(vectors);
  add_stage<32>(vectors);
  TS_UNROLL
  for (int v = 0; v < kRotatedVectors; ++v) memcpy(to + v * kRotatedLanes, &vectors[v], sizeof(RotatedVector));
}

// Rotates all columns of one row, with zeros up to a multiple of 64. `to` has as many columns.
inline void rotate_columns(const float* x, int64_t columns, float* to) {
  const int64_t whole = columns / kRotatedColumns * kRotatedColumns;
  for (int64_t k = 0; k < whole; k += kRotatedColumns) rotate_step(x + k, to + k);
  if (whole == columns) return;
  alignas(64) float last[kRotatedColumns] = {};
  memcpy(last, x + whole, static_cast<size_t>(columns - whole) * 4);
  rotate_step(last, to + whole);
}

}  // namespace twostroke
