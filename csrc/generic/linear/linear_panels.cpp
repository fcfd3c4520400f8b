// The places of rows, panels and groups of one product.
#include "twostroke/products/linear_job.h"

namespace twostroke {

QuantizedRow quantized_row(const QuantizedRows& xq, int64_t row) {
  return {xq.q + (xq.blocked ? row / kRowBlock : row) * xq.q_stride,
          xq.q_group_stride,
          xq.scales + row,
          xq.corrections + row,
          xq.rows,
          xq.sub_corrections == nullptr ? nullptr : xq.sub_corrections + row * xq.subgroups};
}

QuantizedRow quantized_group(const QuantizedRows& xq, int64_t row, int64_t group) {
  QuantizedRow at = quantized_row(xq, row);
  const int64_t first = group * xq.scales_each;
  at.q += first * at.group_stride;
  at.scales += first * at.pair_stride;
  at.corrections += first * at.pair_stride;
  if (!xq.blocked) at.sub_corrections += first * xq.q_group_stride / kSubgroup;
  return at;
}

TileRows tile_rows(const QuantizedRows& xq, int64_t row) {
  const QuantizedRow at = quantized_row(xq, row);
  return {nullptr, 0, at.q, xq.q_stride, at.group_stride, at.scales, at.corrections, at.pair_stride, at.sub_corrections, xq.subgroups};
}

TileRows tile_rows(const Job& job, int64_t row) {
  if (is_integer_kind(job.w.kind)) return tile_rows(job.xq, row);
  TileRows rows = {};
  rows.x = job.x + row * job.x_stride;
  rows.x_stride = job.x_stride;
  return rows;
}

Panel panel_of(const Operands& job, int64_t index) {
  Panel panel = {};
  panel.data = static_cast<const uint8_t*>(job.w.data) + index * panel_bytes(job.w.kind, job.padded);
  panel.columns = is_integer_kind(job.w.kind) ? job.padded : job.w.columns;
  panel.group = job.w.group;
  if (job.w.scales != nullptr) {
    panel.scales = reinterpret_cast<const uint8_t*>(job.w.scales) + index * job.groups * kPanel * 2;
  }
  return panel;
}

Group group_of(const Job& job, const Panel& panel, int64_t index, const uint8_t* next) {
  const int64_t first = index * panel.group, end = first + panel.group, skipped = job.xq.first_group;
  const uint8_t* data = panel.data + panel_bytes(job.w.kind, first);
  const uint8_t* scales = panel.scales == nullptr ? nullptr : panel.scales + index * kPanel * 2;
  const bool last = index + 1 == job.first_group + job.slice_groups;
  const int64_t columns = end >= panel.columns ? panel.columns - first : panel.group;
  return {data, scales, last ? next : panel.data + panel_bytes(job.w.kind, end), index - skipped, first - skipped * panel.group, columns};
}

int64_t part_panel(const Operands& job, int64_t panel, int64_t part) {
  return part == 0 ? panel : job.gated / kPanel + panel + part - 1;
}

int64_t last_part(const Operands& job, int64_t panel) {
  const int64_t panels = (job.w.rows + kPanel - 1) / kPanel;
  return job.parts > 1 && part_panel(job, panel, job.parts - 1) >= panels ? job.parts - 1 : job.parts;
}

Place place_of(const Operands& job, int64_t panel, int64_t row) {
  return {job.out + row * job.out_stride + panel * kPanel, job.out_stride};
}

}  // namespace twostroke
