// embed: rows of a packed table as float32.
#include "twostroke/checks.h"
#include "twostroke/products/packed_row.h"
#include "twostroke/products/rotate.h"
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

void embed_task(const ts_embed_args& a, int64_t index) {
  const ts_weight& w = *a.table;
  const int64_t padded = padded_columns(w.kind, w.columns), row = a.token_ids.data[index];
  float* out = a.out.data + index * a.out.stride;
  const uint8_t* panel = static_cast<const uint8_t*>(w.data) + row / kPanel * panel_bytes(w.kind, padded);
  if (w.kind == TS_W_F32) return f32_row(panel, row % kPanel, w.columns, out);
  if (w.kind == TS_W_BF16) return bf16_row(panel, row % kPanel, w.columns, out);
  for (int64_t first = 0; first < w.columns; first += kStoredGroup) {
    alignas(64) float values[kStoredGroup];
    const int64_t left = w.columns - first, columns = padded - first < kStoredGroup ? padded - first : kStoredGroup;
    packed_row(w, row, first, columns, values);
    for (int64_t at = 0; w.rotated != 0 && at < columns; at += kRotatedColumns) rotate_step(values + at, values + at);
    memcpy(out + first, values, static_cast<size_t>(left < columns ? left : columns) * 4);
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
