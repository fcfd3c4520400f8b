// Where rows, panels and groups of one product lie.
// Knows: packed layouts, a job. Must not know: threads, tiles.
#include "twostroke/linear_job.h"

namespace twostroke {

int8_t* q_row(const Job& job, int64_t row) {
  if (!job.matrix) return job.q + row * job.q_stride;
  return job.q + row / kMatrixTileRows * job.q_stride + row % kMatrixTileRows * kStep;
}

TileRows tile_rows(const Job& job, int64_t row) {
  TileRows rows = {};
  if (is_integer_kind(job.w.kind)) {
    rows.q = q_row(job, row);
    rows.q_stride = job.q_stride;
    rows.scales = job.scales + row * job.groups;
    rows.corrections = job.corrections + row * job.groups;
    rows.groups = job.groups;
    rows.subgroups = job.padded / kSubgroup;
    rows.sub_corrections = job.sub_corrections + row * rows.subgroups;
  } else {
    rows.x = job.x + row * job.x_stride;
    rows.x_stride = job.x_stride;
  }
  return rows;
}

Panel panel_of(const Job& job, int64_t index) {
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
  const int64_t first = index * panel.group, end = first + panel.group;
  const uint8_t* data = panel.data + panel_bytes(job.w.kind, first);
  const uint8_t* scales = panel.scales + index * kPanel * 2;
  if (end >= panel.columns) return {data, scales, next, index, first, panel.columns - first};
  return {data, scales, panel.data + panel_bytes(job.w.kind, end), index, first, panel.group};
}

int64_t part_panel(const Job& job, int64_t panel, int64_t part) {
  return part == 0 ? panel : job.gated / kPanel + panel + part - 1;
}

int64_t last_part(const Job& job, int64_t panel) {
  const int64_t panels = (job.w.rows + kPanel - 1) / kPanel;
  return job.parts > 1 && part_panel(job, panel, job.parts - 1) >= panels ? job.parts - 1 : job.parts;
}

}  // namespace twostroke
