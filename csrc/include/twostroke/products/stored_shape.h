// The layout of weights that keep a file's codes and scales: the kinds of src/twostroke/ops/stored_layout.py, in numbers.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {

// The values of nibbles: their own value minus an offset; floats of 4 bits, doubled; or the numbers of ggml's IQ4.
enum CodeTable { kNoTable, kE2M1, kIQ4 };

// The numbers of IQ4_NL and IQ4_XS, plus 128.
constexpr uint8_t kIQ4Codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kNearestToZero = 8;  // the code for padding in IQ4, which has no zero; its scale is zero

constexpr int64_t kStoredGroup = 256;  // columns of a group
constexpr int64_t kFineColumns = 32;  // columns that share a scale of the activations, where a group has several scales

// The fields of a kind:
// sub: the columns of one step. nibbles: whether codes have 4 bits, with an excess of `offset`; else they are bytes with an excess of 128.
// super: whether a group has one scale and whole multipliers; else each step has a scale. minimum: whether a minimum is subtracted in each
// step. floats: whether scales and minima are float32; else they are float16.
// table: the values of nibbles. high: the bits of a code above its nibble, in a plane before the nibbles of each block of `32 / high`
// columns. alone: whether that plane is the whole code, without nibbles. third: whether such codes have a third bit, in a plane of half the
// size after theirs.
// whole: the number of columns is a multiple of it. fine: whether a scale of the activations belongs to kFineColumns columns, which are one
// or two steps; else it belongs to the group.
struct StoredShape {
  int64_t sub, offset;
  bool nibbles, super, minimum, floats = false;
  CodeTable table = kNoTable;
  int64_t high = 0;
  bool alone = false, third = false;
  int64_t bits = alone ? high + third : nibbles ? 4 + high : 8;  // the bits of a code
  int64_t whole = sub > TS_PANEL_ROWS ? sub : 1;
  bool fine = !super && (!floats || table == kE2M1);
  constexpr int64_t activation_columns() const { return fine ? kFineColumns : kStoredGroup; }
};

constexpr StoredShape stored_shape(int32_t kind) {
  switch (kind) {
    case TS_W_FLAT8: return {32, 128, false, false, false};
    case TS_W_FLAT4: return {32, 8, true, false, false};
    case TS_W_FLAT8_MIN: return {32, 128, false, false, true};
    case TS_W_SUPER2: return {16, 1, true, true, false, false, kNoTable, 2, true};
    case TS_W_SUPER2_MIN: return {16, 0, true, true, true, false, kNoTable, 2, true};
    case TS_W_SUPER3: return {16, 4, true, true, false, false, kNoTable, 2, true, true};
    case TS_W_FLAT4_IQ: return {32, 128, true, false, false, false, kIQ4};
    case TS_W_SUPER4_IQ: return {32, 128, true, true, false, false, kIQ4};
    case TS_W_FLAT4_MIN: return {32, 0, true, false, true};
    case TS_W_FLAT5: return {32, 16, true, false, false, false, kNoTable, 1};
    case TS_W_FLAT5_MIN: return {32, 0, true, false, true, false, kNoTable, 1};
    case TS_W_SUPER8: return {16, 128, false, true, false};
    case TS_W_SUPER8_MIN: return {16, 128, false, true, true};
    case TS_W_AFFINE4_128: return {128, 0, true, false, true, true};
    case TS_W_AFFINE4_64: return {64, 0, true, false, true, true};
    case TS_W_AFFINE4_32: return {32, 0, true, false, true, true};
    case TS_W_AFFINE8_128: return {128, 128, false, false, true, true};
    case TS_W_AFFINE8_64: return {64, 128, false, false, true, true};
    case TS_W_AFFINE8_32: return {32, 128, false, false, true, true};
    case TS_W_E2M1_32: return {32, 0, true, false, false, true, kE2M1};
    case TS_W_E2M1_16: return {16, 0, true, false, false, true, kE2M1};
    case TS_W_SUPER4_16: return {16, 8, true, true, false};
    case TS_W_SUPER4_MIN_16: return {16, 0, true, true, true};
    case TS_W_SUPER5_MIN: return {32, 0, true, true, true, false, kNoTable, 1};
    case TS_W_SUPER6: return {16, 32, true, true, false, false, kNoTable, 2};
    case TS_W_SUPER6_MIN: return {16, 32, true, true, true, false, kNoTable, 2};
    default: return {32, 0, true, true, true};  // this is TS_W_SUPER4_MIN
  }
}

// The bytes of a panel of `padded` columns, or of a group's first `padded` columns.
constexpr int64_t stored_panel_bytes(const StoredShape& shape, int64_t padded) {
  const int64_t codes = padded * TS_PANEL_ROWS * shape.bits / 8, kinds = shape.minimum ? 2 : 1, steps = padded / shape.sub;
  return codes + kinds * TS_PANEL_ROWS * (shape.super ? steps + (padded + kStoredGroup - 1) / kStoredGroup * 2 : steps * (shape.floats ? 4 : 2));
}

}  // namespace twostroke
