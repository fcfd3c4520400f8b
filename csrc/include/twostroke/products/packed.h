// Packed weights: their sizes, the check that one is whole, and one matrix of a bank. src/twostroke/ops/operands.py defines the layouts.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"
#include "twostroke/products/stored_shape.h"

namespace twostroke {

constexpr int64_t kPanel = TS_PANEL_ROWS;
constexpr int64_t kStep = 64;  // integer kinds are padded to a multiple of this many columns
constexpr int64_t kSubgroup = 16;  // columns of int4 that share a multiplier
constexpr int64_t kMultiplierBytes = kStep / kSubgroup / 2 * kPanel;  // the multipliers at the beginning of a step of int4
constexpr int64_t kInt4StepBytes = kMultiplierBytes + kStep / 2 * kPanel;
constexpr int64_t kMaxGroup = 1024;  // a limit at which 1024 * 255 * 127 fits int32

// Whether a kind has the codes and scales of ggml's files: see stored_shape.h.
constexpr bool is_stored_kind(int32_t kind) { return kind >= TS_W_FLAT8; }

// Whether a kind's activations are rounded to int8.
constexpr bool is_integer_kind(int32_t kind) { return kind >= TS_W_INT8; }

// Whether a kind's columns may be rotated. Its activations must have one scale for whole blocks of rotated columns.
constexpr bool is_rotated_kind(int32_t kind) { return is_stored_kind(kind) ? !stored_shape(kind).fine : is_integer_kind(kind); }

constexpr int64_t padded_columns(int32_t kind, int64_t columns) {
  const int64_t multiple = kind == TS_W_F32 ? 1 : kind == TS_W_BF16 ? 2 : kStep;
  return (columns + multiple - 1) / multiple * multiple;
}

// The bytes of one panel of `padded` columns. For int4 these are whole steps.
constexpr int64_t panel_bytes(int32_t kind, int64_t padded) {
  if (is_stored_kind(kind)) return stored_panel_bytes(stored_shape(kind), padded);
  if (kind == TS_W_INT4) return padded / kStep * kInt4StepBytes;
  return kPanel * padded * (kind == TS_W_F32 ? 4 : kind == TS_W_BF16 ? 2 : 1);
}

// Returns TS_OK, or the status of what is wrong with a weight or a bank.
inline int32_t check_weight(const ts_weight* w) {
  if (w == nullptr || w->data == nullptr) return TS_BAD_POINTER;
  if (w->kind < TS_W_F32 || w->kind > TS_W_LAST) return TS_BAD_FORMAT;
  if (w->rows <= 0 || w->columns <= 0) return TS_BAD_SHAPE;
  if (reinterpret_cast<uintptr_t>(w->data) % 4 != 0) return TS_BAD_POINTER;
  if (w->rotated != 0 && (w->rotated != kStep || !is_rotated_kind(w->kind))) return TS_BAD_FORMAT;
  if (!is_integer_kind(w->kind)) return w->group == 0 ? TS_OK : TS_BAD_FORMAT;
  if (is_stored_kind(w->kind)) {
    if (w->group != kStoredGroup || w->scales != nullptr) return TS_BAD_FORMAT;
    return w->columns % stored_shape(w->kind).whole != 0 ? TS_BAD_SHAPE : TS_OK;
  }
  if (w->group <= 0 || w->group % kStep != 0 || w->group > kMaxGroup) return TS_BAD_FORMAT;
  return w->scales == nullptr ? TS_BAD_POINTER : TS_OK;
}

// The columns of activations that share a scale when they are rounded to int8; 0 for floats.
inline int64_t activation_columns(const ts_weight& w) { return is_stored_kind(w.kind) ? stored_shape(w.kind).activation_columns() : w.group; }

// One matrix of a bank.
inline ts_weight matrix_of(const ts_weight& bank, int64_t index) {
  const int64_t padded = padded_columns(bank.kind, bank.columns), panels = (bank.rows + kPanel - 1) / kPanel;
  const int64_t groups = bank.group > 0 ? (padded + bank.group - 1) / bank.group : 0;
  ts_weight one = bank;
  one.experts = 0;
  one.data = static_cast<const uint8_t*>(bank.data) + index * panels * panel_bytes(bank.kind, padded);
  if (bank.scales != nullptr) one.scales = bank.scales + index * panels * groups * kPanel;
  if (bank.bias != nullptr) one.bias = bank.bias + index * bank.rows;
  return one;
}

}  // namespace twostroke
