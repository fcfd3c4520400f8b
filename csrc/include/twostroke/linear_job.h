// One call of ts_linear or of its kin, as its tasks see it.
#pragma once
#include "twostroke/linear.h"

namespace twostroke {

constexpr int64_t kWholeRows = 128;  // so many rows are never multiplied in slices of their columns
constexpr int64_t kMaxParts = 3;  // a gate panel, and two of up rows where half the rows of W is no multiple of 64

struct Operands;
struct Job;

// One way to multiply, chosen by the kind of weights and the rows alone. name: of the function that multiplies.
// few: few rows by `count` output panels, sums (count, parts, rows, 64); NULL where rows are many.
// group: some rows by one group of a panel, where rows are many. block: room for one group of int4 in bytes. Both NULL for floats.
struct Way {
  const char* name;
  void (*few)(const Job&, int64_t first_panel, int64_t count, float* sums);
  void (*group)(const Job&, const Group&, int64_t first_row, int64_t last_row, float* sums, uint8_t* block);
};
const Way& way_of(int32_t kind, int64_t rows, bool in_turn);

// Where the first row of a panel's results goes.
struct Place {
  float* at;
  int64_t stride;
};

// Takes the sums (parts, rows, 64), without bias, of one output panel; part_floats from one part to the next.
typedef void (*Finish)(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);

// Activations in int8, with what undoes it; see TileRows. blocked: as block_group reads them.
struct QuantizedRows {
  bool blocked;
  int8_t* q;
  int64_t q_stride, q_group_stride;
  int64_t scales_each;  // of a group of columns: one, or more in groups of stored kinds that are fine
  float* scales;
  int32_t* corrections;
  int64_t rows;
  int32_t* sub_corrections;  // NULL in blocks, where they are not used
  int64_t subgroups;
  int64_t first_group;  // the group of the weights that the first one here belongs to
};

// What an op says: the weights, some rows, and what becomes of their products.
struct Operands {
  ts_weight w;
  const float* x;
  int64_t x_stride, tokens;
  float* out;
  int64_t out_stride;
  int64_t padded, groups, panels;  // panels: of the output
  int64_t gated;                   // 0, or half the rows of W: output column i is made of row i and row gated + i
  int64_t parts;                   // panels of W that make one output panel
  Finish finish;
};

// How the work becomes tasks of the pool, and which columns they multiply now.
struct Schedule {
  const Way* way;
  bool in_turn;                       // whether this CPU likes several stretches of memory in turn
  int64_t panels_each, row_splits;    // output panels of one task; parts of the rows
  int64_t first_group, slice_groups;  // the columns that are multiplied now
};

// The memory between x and out.
struct Scratch {
  QuantizedRows xq;
  float* partial;  // (panels, parts, rows, 64): where sums wait between slices; NULL where there is one slice
  uint8_t* room;   // for each thread: sums of all rows and one panel, then one group of it unpacked
  int64_t room_bytes;
};

struct Job : Operands, Schedule, Scratch {};

// What all calls of this weight have in common; gated: half its rows, or 0.
Job make_job(const ts_weight& w, const float* x, int64_t x_stride, float* out, int64_t out_stride, int64_t gated, Finish finish);
// How many of `tokens` rows are multiplied together.
int64_t chunk_rows(const Operands&, int64_t tokens);
// Schedules job.tokens rows and lays their scratch memory out from `scratch` on, all parts at multiples of 64 bytes; returns its bytes.
// NULL only counts them. num_together: the number of jobs of about this size whose tasks the threads share, this job included.
int64_t lay_out(Job&, const ts_context*, uint8_t* scratch, int64_t num_together = 1);
// The same without the rows: the caller lays them out and rounds all their groups.
int64_t lay_out_given(Job&, const ts_context*, uint8_t* scratch);
// The memory of rows in `groups` groups.
int64_t lay_out_rows(QuantizedRows&, const ts_weight& w, int64_t padded, int64_t groups, uint8_t* scratch);
// One slice after the other of job.tokens rows; memory is laid out. Each slice of x is rounded before it is multiplied.
void multiply_chunk(ts_context*, Job&);
void multiply_given(ts_context*, Job&);  // job.xq has all groups already
void quantize_slice(ts_context*, Job&);
void choose_splits(Job&, int64_t tasks, int64_t threads);
// The first row of a part of the rows: rows of a block are not parted.
int64_t row_point(const Job&, int64_t part);
void multiply_task(void* job, int64_t index, int32_t thread);
// Some rows by `count` output panels, at most panels_each; of few rows all of them.
void multiply_panels(const Job&, int64_t panel, int64_t count, int64_t first_row, int64_t last_row, int32_t thread, const Place& out);
// Some rows by one output panel.
void integer_panel(const Job&, int64_t index, int64_t first_row, int64_t last_row, int32_t thread, const Place& out);

// Where part i of `parts` nearly equal parts begins.
inline int64_t split_point(int64_t total, int64_t parts, int64_t i) { return total / parts * i + (total % parts) * i / parts; }

// Rows in tiles of nearly equal height: calls tile(first row, rows).
template <class Tile>
void each_tile(int64_t first_row, int64_t last_row, int64_t most, const Tile& tile) {
  const int64_t tiles = (last_row - first_row + most - 1) / most;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + split_point(last_row - first_row, tiles, t);
    tile(row, first_row + split_point(last_row - first_row, tiles, t + 1) - row);
  }
}

// The sums (panels, parts, rows, 64) of few rows: those of one part of one panel.
inline float* sums_of(const Operands& job, int64_t panel, int64_t part, float* sums) {
  return sums + (panel * job.parts + part) * job.tokens * kPanel;
}

// Where the int8 form of a row lies.
QuantizedRow quantized_row(const QuantizedRows&, int64_t row);
QuantizedRow quantized_group(const QuantizedRows&, int64_t row, int64_t group);  // from this group of the weights on
TileRows tile_rows(const Job&, int64_t row);
Panel panel_of(const Operands&, int64_t index);
// One group of columns of a panel. next: the address that is read after the slice.
Group group_of(const Job&, const Panel&, int64_t index, const uint8_t* next);
// The panel of W that is one part of an output panel: the gate's, or the one or two that hold the up rows next to it.
int64_t part_panel(const Operands&, int64_t panel, int64_t part);
// The parts that there are of an output panel: the last may lie after the end of W.
int64_t last_part(const Operands&, int64_t panel);
Place place_of(const Operands&, int64_t panel, int64_t row);

// Few rows by up to panels_each output panels.
void few_rows(const Job&, int64_t first_panel, int64_t count, int32_t thread, const Place& out);

void finish_store(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);
void finish_add(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);
void finish_silu(const Operands&, int64_t panel, int64_t rows, const float* sums, int64_t part_floats, const Place& out);

}  // namespace twostroke
