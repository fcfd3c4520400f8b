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
  int64_t panel_splits, row_splits;
};

void finish_store(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);
void finish_add(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);
void finish_silu(const Job&, int64_t panel, int64_t first_row, int64_t rows, const float* sums, int64_t part_floats);

}  // namespace twostroke
