// This file finishes the sums of a product. It adds the bias, and then stores the sums, adds them to the values in out, or gates them by
// silu.
#include "twostroke/rows/activation.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

int64_t panel_width(int64_t columns, int64_t panel) {
  return columns - panel * kPanel < kPanel ? columns - panel * kPanel : kPanel;
}

void add_row(float* row, const float* other, int64_t width) {
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) store(row + c, load(row + c) + load(other + c));
  for (; c < width; ++c) row[c] += other[c];
}

// Finishes one row of one part, with bias. The row begins `shift` columns into the part and ends in the next part.
void part_row(const Operands& job, const float* sums, int64_t part_floats, int64_t shift, int64_t width, int64_t bias_at, float* row) {
  const int64_t from_first = kPanel - shift < width ? kPanel - shift : width;
  memcpy(row, sums + shift, static_cast<size_t>(from_first) * 4);
  if (from_first < width) memcpy(row + from_first, sums + part_floats, static_cast<size_t>(width - from_first) * 4);
  if (job.w.bias != nullptr) add_row(row, job.w.bias + bias_at, width);
}

// Returns sixteen sums with their bias.
TS_INLINE Vec biased(const float* sums, const float* bias) { return bias == nullptr ? load(sums) : load(sums) + load(bias); }

const float* bias_from(const Operands& job, int64_t column) { return job.w.bias == nullptr ? nullptr : job.w.bias + column; }

// Calls put(place, the row's sums, column in the panel) for each vector of a panel that has all its columns.
template <class Put>
TS_INLINE void whole_panel(const Place& out, int64_t rows, const float* sums, const Put& put) {
  float* row = out.at;
  for (int64_t r = 0; r < rows; ++r, row += out.stride, sums += kPanel) {
    TS_UNROLL
    for (int64_t c = 0; c < kPanel; c += kLanes) put(row + c, sums + c, c);
  }
}

}  // namespace

void finish_store(const Operands& job, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out) {
  const int64_t width = panel_width(job.w.rows, panel), column = panel * kPanel;
  if (width == kPanel) {
    const float* bias = bias_from(job, column);
    return whole_panel(out, rows, sums, [&](float* to, const float* from, int64_t c) {
      store(to, biased(from, bias == nullptr ? nullptr : bias + c));
    });
  }
  for (int64_t r = 0; r < rows; ++r) {
    part_row(job, sums + r * kPanel, part_floats, 0, width, column, out.at + r * out.stride);
  }
}

void finish_add(const Operands& job, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out) {
  const int64_t width = panel_width(job.w.rows, panel), column = panel * kPanel;
  if (width == kPanel) {
    const float* bias = bias_from(job, column);
    return whole_panel(out, rows, sums, [&](float* to, const float* from, int64_t c) {
      store(to, load(to) + biased(from, bias == nullptr ? nullptr : bias + c));
    });
  }
  alignas(64) float row[kPanel];
  for (int64_t r = 0; r < rows; ++r) {
    part_row(job, sums + r * kPanel, part_floats, 0, width, column, row);
    add_row(out.at + r * out.stride, row, width);
  }
}

void finish_silu(const Operands& job, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out) {
  const int64_t width = panel_width(job.gated, panel), column = panel * kPanel, shift = job.gated % kPanel;
  if (width == kPanel && shift == 0) {
    const float *gates = bias_from(job, column), *ups = bias_from(job, job.gated + column);
    return whole_panel(out, rows, sums, [&](float* to, const float* from, int64_t c) {
      const Vec gate = biased(from, gates == nullptr ? nullptr : gates + c);
      store(to, silu(gate) * biased(from + part_floats, ups == nullptr ? nullptr : ups + c));
    });
  }
  alignas(64) float gate[kPanel] = {}, up[kPanel] = {};
  for (int64_t r = 0; r < rows; ++r) {
    part_row(job, sums + r * kPanel, part_floats, 0, width, column, gate);
    part_row(job, sums + part_floats + r * kPanel, part_floats, shift, width, job.gated + column, up);
    for (int64_t c = 0; c < kPanel; c += kLanes) store(gate + c, silu(load(gate + c)) * load(up + c));
    memcpy(out.at + r * out.stride, gate, static_cast<size_t>(width) * 4);
  }
}

}  // namespace twostroke
