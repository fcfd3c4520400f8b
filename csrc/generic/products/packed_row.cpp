// One row of a packed matrix of an integer kind. Four of its columns lie together, and those of the other rows of the panel lie between
// them and the next four.
#include "twostroke/products/packed_row.h"

#include "twostroke/products/linear.h"
#include "twostroke/products/stored.h"

namespace twostroke {
namespace {

const uint8_t* panel_at(const ts_weight& w, int64_t row) {
  return static_cast<const uint8_t*>(w.data) + row / kPanel * panel_bytes(w.kind, padded_columns(w.kind, w.columns));
}

// The scale of a step of int8 or int4.
float scale_at(const ts_weight& w, int64_t row, int64_t first) {
  const int64_t groups = (padded_columns(w.kind, w.columns) + w.group - 1) / w.group;
  return bf16_to_f32(w.scales[(row / kPanel * groups + first / w.group) * kPanel + row % kPanel]);
}

inline uint32_t word_at(const uint8_t* at) {
  uint32_t word;
  memcpy(&word, at, 4);
  return word;
}

// The codes are first put side by side, so that vectors turn them into floats.
void int8_step(const uint8_t* quads, float scale, float* out) {
  uint8_t codes[kStep];
  for (int64_t k = 0; k < kStep; k += 4) memcpy(codes + k, quads + k / 4 * kQuadBytes, 4);
  for (int64_t k = 0; k < kStep; ++k) out[k] = static_cast<float>(codes[k] - 128) * scale;
}

void int4_step(const uint8_t* step, int64_t lane, float scale, float* out) {
  for (int64_t k = 0; k < kStep; ++k) {
    const uint8_t pair = step[k / (2 * kSubgroup) * kPanel + lane];
    const int32_t multiplier = k % (2 * kSubgroup) < kSubgroup ? pair & 15 : pair >> 4;
    const uint8_t packed = step[kMultiplierBytes + (k / 8 * kPanel + lane) * 4 + k % 4];
    const int32_t q = (k % 8 < 4 ? packed & 15 : packed >> 4) - 8;
    out[k] = static_cast<float>(q * multiplier) * scale;
  }
}

// One row of a group of stored codes: see stored_layout.py.
struct StoredRow {
  StoredShape shape;
  const uint8_t *scales, *minima, *codes;
  int64_t lane;
  float scale, minimum_scale;  // for super kinds

  StoredRow(const StoredShape& of, const uint8_t* data, int64_t columns, int64_t lane_of)
      : shape(of), scales(data), minima(data), codes(data), lane(lane_of), scale(1.0f), minimum_scale(1.0f) {
    const int64_t steps = columns / of.sub, kinds = of.minimum ? 2 : 1;
    if (of.super) {
      scale = half_at(data, lane);
      if (of.minimum) minimum_scale = half_at(data, kPanel + lane);
      scales = data + kinds * kPanel * 2;
      minima = scales + steps * kPanel;
      codes = scales + kinds * steps * kPanel;
    } else {
      const int64_t bytes = steps * kPanel * (of.floats ? 4 : 2);
      minima = data + bytes;
      codes = data + kinds * bytes;
    }
  }
  static float half_at(const uint8_t* from, int64_t index) {
    uint16_t bits;
    memcpy(&bits, from + 2 * index, 2);
    return f16_to_f32(bits);
  }
  float plain(const uint8_t* from, int64_t step) const {
    if (!shape.floats) return half_at(from, step * kPanel + lane);
    float value;
    memcpy(&value, from + 4 * (step * kPanel + lane), 4);
    return value;
  }
  float step(int64_t index) const {
    return shape.super ? static_cast<float>(static_cast<int8_t>(scales[index * kPanel + lane])) * scale : plain(scales, index);
  }
  float minimum(int64_t index) const {
    return shape.super ? static_cast<float>(minima[index * kPanel + lane]) * minimum_scale : plain(minima, index);
  }
  // The codes of columns k .. k + 3, in a word, each with the excess of the shape. k: a multiple of 4.
  uint32_t quad(int64_t k) const {
    if (!shape.nibbles) return word_at(codes + (k / 4 * kPanel + lane) * 4);
    if (shape.alone) return plane_quad(k);
    if (shape.high != 0) return high_quad(k);
    return word_at(codes + (k / 8 * kPanel + lane) * 4) >> (k % 8 < 4 ? 0 : 4) & 0x0f0f0f0fu;
  }
  // Planes of two bits for 16 columns each, with or without third bits after them. Bit 4 i + q of third bits belongs to column i of quad q.
  uint32_t plane_quad(int64_t k) const {
    const int64_t quad = k % 16 / 4;
    const uint8_t *block = codes + k / 16 * kPanel * (shape.third ? 6 : 4), *thirds = block + kPanel * 4 + lane * 2;
    const uint32_t two = word_at(block + lane * 4) >> (2 * quad) & 0x03030303u;
    if (!shape.third) return two;
    const uint32_t own = static_cast<uint32_t>(thirds[0] | thirds[1] << 8) >> quad;
    return two | ((own & 1) | (own & 0x10) << 4 | (own & 0x100) << 8 | (own & 0x1000) << 12) << 2;
  }
  // Blocks with a plane of high bits before their nibbles. A block has 32 / high columns.
  uint32_t high_quad(int64_t k) const {
    const int64_t block = 32 / shape.high, at = k % block;
    const uint8_t* begin = codes + k / block * (1 + block / 8) * kPanel * 4 + lane * 4;
    const uint32_t low = word_at(begin + (1 + at / 8) * kPanel * 4) >> (at % 8 < 4 ? 0 : 4) & 0x0f0f0f0fu;
    return low | (word_at(begin) >> (at / 4 * shape.high) & (shape.high == 1 ? 0x01010101u : 0x03030303u)) << 4;
  }
};

// Twice the float of 4 bits, plus 128.
constexpr uint8_t kDoubled[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

void stored_row(int32_t kind, const uint8_t* data, int64_t lane, int64_t columns, float* out) {
  const StoredShape shape = stored_shape(kind);
  const StoredRow row(shape, data, columns, lane);
  uint8_t codes[kStoredGroup];
  for (int64_t k = 0; k < columns; k += 4) {
    const uint32_t four = row.quad(k);
    memcpy(codes + k, &four, 4);
  }
  const uint8_t* const table = shape.table == kIQ4 ? kIQ4Codes : shape.table == kE2M1 ? kDoubled : nullptr;
  for (int64_t k = 0; table != nullptr && k < columns; ++k) codes[k] = table[codes[k]];
  const int32_t excess = table != nullptr ? 128 : static_cast<int32_t>(shape.offset);
  for (int64_t first = 0; first < columns; first += shape.sub) {
    const float step = row.step(first / shape.sub);
    for (int64_t k = first; k < first + shape.sub; ++k) out[k] = static_cast<float>(codes[k] - excess) * step;
    if (!shape.minimum) continue;
    const float minimum = row.minimum(first / shape.sub);
    for (int64_t k = first; k < first + shape.sub; ++k) out[k] = out[k] - minimum;
  }
}

}  // namespace

void packed_row(const ts_weight& w, int64_t row, int64_t first, int64_t columns, float* out) {
  const uint8_t* data = panel_at(w, row) + panel_bytes(w.kind, first);
  const int64_t lane = row % kPanel;
  if (is_stored_kind(w.kind)) return stored_row(w.kind, data, lane, columns, out);
  for (int64_t k = 0; k < columns; k += kStep) {
    const float scale = scale_at(w, row, first + k);
    if (w.kind == TS_W_INT8) {
      int8_step(data + k * kPanel + lane * 4, scale, out + k);
    } else {
      int4_step(data + k / kStep * kInt4StepBytes, lane, scale, out + k);
    }
  }
}

void fetch_row(const ts_weight& w, int64_t row, int64_t first, int64_t columns) {
  const int64_t padded = padded_columns(w.kind, w.columns), end = padded < first + columns ? padded : first + columns;
  const uint8_t *panel = panel_at(w, row), *to = panel + panel_bytes(w.kind, end);
  for (const uint8_t* at = panel + panel_bytes(w.kind, first) + row % kPanel * 4; at < to && first < end; at += kQuadBytes) {
    __builtin_prefetch(at, 0, 3);
  }
}

}  // namespace twostroke
