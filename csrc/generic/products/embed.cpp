// embed: rows of a packed table as float32.
#include "twostroke/checks.h"
#include "twostroke/linear.h"
#include "twostroke/rotate.h"
#include "twostroke/stored.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void f32_row(const uint8_t* panel, int64_t lane, int64_t columns, float* out) {
  for (int64_t k = 0; k < columns; ++k) memcpy(out + k, panel + (k * kPanel + lane) * 4, 4);
}

void bf16_row(const uint8_t* panel, int64_t lane, int64_t columns, float* out) {
  for (int64_t k = 0; k < columns; ++k) {
    uint16_t bits;
    memcpy(&bits, panel + ((k / 2 * kPanel + lane) * 2 + k % 2) * 2, 2);
    out[k] = bf16_to_f32(bits);
  }
}

// Unpacks columns [first, last) of one row.
void int8_row(const uint8_t* panel, const uint16_t* scales, int64_t lane, int64_t first, int64_t last, int64_t group, float* out) {
  for (int64_t k = first; k < last; ++k) {
    const int32_t q = panel[(k / 4 * kPanel + lane) * 4 + k % 4] - 128;
    out[k - first] = static_cast<float>(q) * bf16_to_f32(scales[k / group * kPanel + lane]);
  }
}

void int4_row(const uint8_t* panel, const uint16_t* scales, int64_t lane, int64_t first, int64_t last, int64_t group, float* out) {
  for (int64_t k = first; k < last; ++k) {
    const uint8_t* step = panel + k / kStep * kInt4StepBytes;
    const int64_t at = k % kStep;
    const uint8_t pair = step[at / (2 * kSubgroup) * kPanel + lane];
    const int32_t multiplier = at % (2 * kSubgroup) < kSubgroup ? pair & 15 : pair >> 4;
    const uint8_t packed = step[kMultiplierBytes + (at / 8 * kPanel + lane) * 4 + at % 4];
    const int32_t q = (at % 8 < 4 ? packed & 15 : packed >> 4) - 8;
    out[k - first] = static_cast<float>(q * multiplier) * bf16_to_f32(scales[k / group * kPanel + lane]);
  }
}

// Unpacks the whole group, although a token reads one row in 64 of it; few tokens are read.
void stored_row(const ts_weight& w, const uint8_t* panel, int64_t lane, int64_t padded, float* out) {
  alignas(64) uint8_t room[kStoredRoom];
  alignas(64) float values[kStoredGroup];
  for (int64_t first = 0; first < w.columns; first += kStoredGroup) {
    const int64_t end = padded < first + kStoredGroup ? padded : first + kStoredGroup, left = w.columns - first;
    const StoredGroup group = unpack_stored(w.kind, panel + panel_bytes(w.kind, first), end - first, room);
    for (int64_t at = 0; at < end - first; ++at) {
      const int64_t step = at / group.sub * kPanel + lane;
      const float value = static_cast<float>(group.bytes[(at / 4 * kPanel + lane) * 4 + at % 4] - 128) * group.steps[step];
      values[at] = group.minima == nullptr ? value : value - group.minima[step];
    }
    for (int64_t at = 0; w.rotated != 0 && at < end - first; at += kRotatedColumns) rotate_step(values + at, values + at);
    memcpy(out + first, values, static_cast<size_t>(left < end - first ? left : end - first) * 4);
  }
}

void embed_task(const ts_embed_args& a, int64_t index) {
  const ts_weight& w = *a.table;
  const int64_t padded = padded_columns(w.kind, w.columns), panel_index = a.token_ids.data[index] / kPanel;
  const int64_t lane = a.token_ids.data[index] % kPanel;
  const uint8_t* panel = static_cast<const uint8_t*>(w.data) + panel_index * panel_bytes(w.kind, padded);
  float* out = a.out.data + index * a.out.stride;
  if (w.kind == TS_W_F32) return f32_row(panel, lane, w.columns, out);
  if (w.kind == TS_W_BF16) return bf16_row(panel, lane, w.columns, out);
  if (is_stored_kind(w.kind)) return stored_row(w, panel, lane, padded, out);
  const uint16_t* scales = w.scales + panel_index * ((padded + w.group - 1) / w.group) * kPanel;
  const auto row = w.kind == TS_W_INT8 ? int8_row : int4_row;
  if (w.rotated == 0) return row(panel, scales, lane, 0, w.columns, w.group, out);
  for (int64_t first = 0; first < w.columns; first += kRotatedColumns) {
    alignas(64) float step[kRotatedColumns];
    const int64_t left = w.columns - first;
    row(panel, scales, lane, first, first + kRotatedColumns, w.group, step);
    rotate_step(step, step);
    memcpy(out + first, step, static_cast<size_t>(left < kRotatedColumns ? left : kRotatedColumns) * 4);
  }
}

constexpr int64_t kSerialTokens = 3;

}  // namespace

int32_t run(ts_context* context, const ts_embed_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.out.rows > kSerialTokens) {
    share_tasks<embed_task>(context, a.out.rows, a);
  } else {
    for (int64_t i = 0; i < a.out.rows; ++i) embed_task(a, i);
  }
  return TS_OK;
}

}  // namespace twostroke
