// One call of ts_linear or of a similar op, as its tasks see it.
#pragma once
#include "twostroke/products/linear.h"

namespace twostroke {

constexpr int64_t kWholeRows = 128;  // up to this many rows are never multiplied in slices of their columns
constexpr int64_t kMaxParts = 3;  // a gate panel, and two panels of up rows where half the rows of W is no multiple of 64

struct Operands;
struct Job;

// One way to multiply, chosen only by the kind of weights and the number of rows. name: the function that multiplies. few: multiplies few
// rows by `count` output panels into sums (count, parts, rows, 64); NULL where rows are many. group: multiplies sets of rows by one group
// of a panel, where rows are many. block: the room for one group of int4 in bytes. group and block are NULL for floats.
struct Way {
  const char* name;
  void (*few)(const Job&, int64_t first_panel, int64_t count, float* sums);
  void (*group)(int32_t kind, const Group&, const RowSets&, uint8_t* block);
};
const Way& way_of(int32_t kind, int64_t rows, bool in_turn);
constexpr int64_t kManyRows = 17;  // so many rows always have a way with `group`, if weights are integers

// Takes the sums (parts, rows, 64), without bias, of one output panel. part_floats: the distance from one part to the next.
typedef void (*Finish)(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);

// Activations in int8, with their scales and corrections; see TileRows. blocked: whether they have the form that block_group reads.
struct QuantizedRows {
  bool blocked;
  int8_t* q;
  int64_t q_stride, q_group_stride;
  int64_t scales_each;  // scales of a group of columns: one, or more in groups of fine stored kinds
  float* scales;
  int32_t* corrections;
  int64_t rows;
  int32_t* sub_corrections;  // NULL in blocks, which do not use them
  int64_t subgroups;
  int64_t first_group;  // the group of the weights to which the first group here belongs
};

// The operands of an op: the weights, some rows, and the use of their products.
struct Operands {
  ts_weight w;
  const float* x;
  int64_t x_stride, tokens;
  float* out;
  int64_t out_stride;
  int64_t padded, groups, panels;  // panels: the panels of the output
  int64_t gated;  // 0, or half the rows of W; output column i then comes from row i and row gated + i
  int64_t parts;  // the panels of W from which one output panel is computed
  Finish finish;
};

// How the work becomes tasks of the pool, and which columns the tasks multiply now.
struct Schedule {
  const Way* way;
  bool in_turn;  // whether this CPU reads several stretches of memory in turn
  int64_t panels_each, row_splits;  // panels_each: the output panels of one task; row_splits: the parts of the rows
  int64_t first_group, slice_groups;  // the columns that are multiplied now
};

// The rows of a job at positions below kFirstPositions. What rounding such a row loses, its remainder, is rounded in the same way.
struct FirstRows {
  int64_t count;
  int32_t* rows;  // rising
  QuantizedRows xq;  // the remainders
  float* partial;  // for each panel, part by part: the sums of the remainders between slices; NULL where there is one slice
};

// The memory that a product needs between x and out.
struct Scratch {
  QuantizedRows xq;
  float* partial;  // (panels, parts, rows, 64): the sums between slices; NULL where there is one slice
  uint8_t* room;  // for each thread: sums of all rows and one panel, those of remainders, then one unpacked group of it
  int64_t room_bytes;
  FirstRows first;
};

struct Job : Operands, Schedule, Scratch {};

// Makes the operands that all calls with this weight share. gated: half its rows, or 0.
Job make_job(const ts_weight& w, const float* x, int64_t x_stride, float* out, int64_t out_stride, int64_t gated, Finish finish);
// How many of `tokens` rows are multiplied together.
int64_t chunk_rows(const Operands&, int64_t tokens);
// Schedules job.tokens rows and lays their scratch memory out from `scratch` on, all parts at multiples of 64 bytes; returns its bytes.
// NULL only counts them. num_together: the number of jobs of about this size whose tasks the threads share, this job included.
int64_t lay_out(Job&, const ts_context*, uint8_t* scratch, int64_t num_together = 1);
// The same, where job.xq is laid out already, and the caller rounds all its groups.
int64_t lay_out_given(Job&, const ts_context*, uint8_t* scratch);
// Lays out the memory of rows in `groups` groups.
int64_t lay_out_rows(QuantizedRows&, const ts_weight& w, int64_t padded, int64_t groups, uint8_t* scratch);
// Computes x @ W.T of any number of rows. gated: half the rows of W, or 0. positions: (tokens,); NULL where all rows have one code.
struct ProductRows {
  const float* x;
  int64_t x_stride, tokens;
  float* out;
  int64_t out_stride;
  const int32_t* positions;
};
int32_t multiply(ts_context*, const ts_weight* w, const ProductRows& rows, int64_t gated, Finish finish);
// Computes ts_feed_forward.
int32_t feed_forward(ts_context*, const ts_weight* gate_up, const ts_weight* down, const ProductRows& rows, float* middle, int64_t middle_stride);
// Multiplies job.tokens rows, one slice after the other. The memory is laid out before. Each slice of x is rounded before it is multiplied.
void multiply_chunk(ts_context*, Job&);
void multiply_given(ts_context*, Job&);  // the same, where job.xq has all groups already
void quantize_slice(ts_context*, Job&);
// Rounds one group of columns of up to kRowBlock rows, which are x_stride apart, into the input of the job.
void round_block(const Job&, int64_t row, int64_t rows, int64_t group, const float* x, int64_t x_stride);

// The rows of a product that have two codes; none without positions. job.first.count is set before the job is laid out, and job.first.rows
// is found after.
int64_t count_first(const ts_weight& w, const int32_t* positions, int64_t rows);
void find_first(FirstRows&, const int32_t* positions, int64_t rows);
// Computes x - code * scale for each of up to kMaxGroup columns of a row, rotated where the weight is, with zeros up to whole steps.
void remainder_of(const float* x, int64_t width, Rounding8 how, float* to);
// Rounds the remainder of the first row with this index, in all groups of the slice.
void round_remainder(const Job&, int64_t index);
// Rounds one group of columns of the remainders of some rows. x: row first_row; rows are x_stride apart.
void round_remainders(const Job&, int64_t first_row, int64_t last_row, int64_t group, const float* x, int64_t x_stride);

// The remainders of the rows of one task, and their sums while it multiplies one output panel.
struct Remainders {
  int64_t begin, end;  // those of the rows
  int64_t from, to;  // those that are multiplied, in whole blocks
  float* sums;  // (parts, to - from, 64)

  float* of_part(int64_t part) const { return sums + part * (to - from) * kPanel; }
  RowSet set(const FirstRows&, int64_t part) const;
};
// room: the place of the sums, which become 0, or those of the slices before.
Remainders remainders_of(const Job&, int64_t panel, int64_t first_row, int64_t last_row, float* room);
// Keeps the sums for the next slice.
void keep_remainders(const Job&, int64_t panel, const Remainders&);
// Adds the sums of remainders to those of their rows (parts, rows, 64), of which row `first_row` is the first.
void add_remainders(const Job&, int64_t panel, const Remainders&, int64_t first_row, int64_t last_row, float* sums, int64_t part_floats);

void choose_splits(Job&, int64_t tasks, int64_t threads);
// The first row of a part of the rows. A block of rows is never divided.
int64_t row_point(const Job&, int64_t part);
void multiply_task(void* job, int64_t index, int32_t thread);
// Multiplies some rows by `count` output panels, at most panels_each. With few rows it takes all of them.
void multiply_panels(const Job&, int64_t panel, int64_t count, int64_t first_row, int64_t last_row, int32_t thread, const Place& out);
// Multiplies some rows by one output panel.
void integer_panel(const Job&, int64_t index, int64_t first_row, int64_t last_row, int32_t thread, const Place& out);

// The beginning of part i of `parts` nearly equal parts.
inline int64_t split_point(int64_t total, int64_t parts, int64_t i) { return total / parts * i + (total % parts) * i / parts; }

// Divides rows into tiles of nearly equal height and calls tile(first row, rows).
template <class Tile>
void each_tile(int64_t first_row, int64_t last_row, int64_t most, const Tile& tile) {
  const int64_t tiles = (last_row - first_row + most - 1) / most;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + split_point(last_row - first_row, tiles, t);
    tile(row, first_row + split_point(last_row - first_row, tiles, t + 1) - row);
  }
}

// The sums of one part of one panel, among the sums (panels, parts, rows, 64) of few rows.
inline float* sums_of(const Operands& job, int64_t panel, int64_t part, float* sums) {
  return sums + (panel * job.parts + part) * job.tokens * kPanel;
}

// The place of the int8 form of a row.
QuantizedRow quantized_row(const QuantizedRows&, int64_t row);
QuantizedRow quantized_group(const QuantizedRows&, int64_t row, int64_t group);  // the same, from this group of the weights on
TileRows tile_rows(const QuantizedRows&, int64_t row);
TileRows tile_rows(const Job&, int64_t row);
Panel panel_of(const Operands&, int64_t index);
// One group of columns of a panel. next: the address that is read after the slice.
Group group_of(const Job&, const Panel&, int64_t index, const uint8_t* next);
// The panel of W that is one part of an output panel: the gate's panel, or one of the one or two panels that hold its up rows.
int64_t part_panel(const Operands&, int64_t panel, int64_t part);
// The number of parts that an output panel has. Its last part may lie after the end of W.
int64_t last_part(const Operands&, int64_t panel);
Place place_of(const Operands&, int64_t panel, int64_t row);

// Multiplies few rows by up to panels_each output panels.
void few_rows(const Job&, int64_t first_panel, int64_t count, int32_t thread, const Place& out);

void finish_store(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);
void finish_add(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);
void finish_silu(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);

}  // namespace twostroke
