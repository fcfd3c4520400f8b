// One call of ts_linear or of its kin, as its tasks see it.
// Knows: linear.h. Must not know: how tasks are shared out, vector instructions.
#pragma once
#include "twostroke/linear.h"

namespace twostroke {

constexpr int64_t kMaxParts = 3;  // a gate panel, and two of up rows where half the rows of W is no multiple of 64

struct Job;

// Takes the sums (parts, rows, 64), without bias, of one output panel; part_floats from one part to the next.
typedef void (*Finish)(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);

struct Job {
  ts_weight w;
  const float* x;
  int64_t x_stride, tokens;
  float* out;
  int64_t out_stride;
  int64_t padded, groups, panels;  // panels: of the output
  int64_t gated;                   // 0, or half the rows of W: output column i is made of row i and row gated + i
  int64_t parts;                   // panels of W that make one output panel
  Finish finish;
  bool matrix;  // q is in tiles for matrix registers
  int8_t* q;
  int64_t q_stride;
  float* scales;
  int32_t *corrections, *sub_corrections;
  uint8_t* room;  // for each thread: sums of all rows and one panel, then one group of it unpacked
  int64_t room_bytes;
  int64_t panels_each, row_splits;  // output panels of one task; parts of the rows
  bool streamed;                    // by stream_panels
};

// Where the int8 form of a row begins.
int8_t* q_row(const Job&, int64_t row);
TileRows tile_rows(const Job&, int64_t row);
Panel panel_of(const Job&, int64_t index);
// One group of columns of a panel. next: what is read behind the panel.
Group group_of(const Job&, const Panel&, int64_t index, const uint8_t* next);
// The panel of W that is one part of an output panel: the gate's, or the one or two that hold the up rows beside it.
int64_t part_panel(const Job&, int64_t panel, int64_t part);
// The parts that there are of an output panel: the last may lie behind the end of W.
int64_t last_part(const Job&, int64_t panel);

// Output panels whose parts are as many panels of W as are streamed at once; 0 where no number of them is.
int64_t streamed_panels(const Job&);
// All rows (at most kStreamRows) times the panels of one such task.
void stream_panels(const Job&, int64_t first_panel, int32_t thread);

void finish_store(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);
void finish_add(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);
void finish_silu(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);

}  // namespace twostroke
