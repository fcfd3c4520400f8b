// experts: the sum, over the experts that a row chose, of weight * down(act(gate x) * up x), or of the block without a gate. Pairs of a row
// and an expert are sorted by expert. A part is the rows that use one expert. A wave is some hundred pairs, whose parts go through each
// stage together. The stages gather and round rows, multiply, gate and round, multiply again, and add. So a step of few rows is a few jobs
// of the pool, whose tasks are panels of all its experts. Each matrix is read once, from front to back.
// In the last stage a task has some columns of the output and takes the pairs in order. So a row's sum is in the order of its experts'
// numbers, and its bits depend on that row alone.
#include <string.h>

#include <initializer_list>

#include "twostroke/rows/activation.h"
#include "twostroke/arena.h"
#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/ops.h"
#include "twostroke/rows/pointwise.h"

namespace twostroke {
namespace {

constexpr int64_t kMostRows = 1 << 24;  // whole numbers below it are exact in float32
// pairs of a wave for each thread, so few that data between two stages stays in a thread's second-level cache
constexpr int64_t kWavePairs = 24;
constexpr int64_t kSerialElements = 1 << 15;
constexpr int64_t kColumnsEach = 256;  // columns of a task of the last stage

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t blocks_of(int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; }

struct Pair {
  int64_t row;
  float weight;
};

// The rows that use one expert, at most kWholeRows, as rows of its two products.
struct Part {
  Job gate_up, down;
  const Pair* pairs;
  // the numbers of its first tasks: first_block counts blocks of rows, the others count panels of each product
  int64_t first_block, first_gate, first_down;
};

// A call, and its current wave.
struct Experts {
  ts_context* context;
  const ts_experts_args& a;
  Pair* pairs;  // the pairs of all experts, one expert after the other
  int64_t starts[kMostExperts + 1];
  Part* parts;
  int64_t count, blocks, gate_tasks, down_tasks;
  float* gathered;  // for each thread: some columns of each row of a block
  int64_t num_together;  // the experts that rows use, at most those of a wave
  bool first_wave;

  int64_t all_pairs() const { return starts[a.gate_up->experts]; }
};

bool is_silu(const ts_experts_args& a) { return has_gate(a) && a.activation == kSilu && a.limit <= 0 && a.shift == 0; }

const float* numbers_of(const ts_experts_args& a, int64_t row) { return a.routes.data + row * a.routes.stride + width_of(a.routes) / 2; }

// starts[e + 1] becomes the number of rows that chose e. Returns false where a row has a number that is no expert, or one expert twice.
// Idle experts have no rows.
bool count_rows(const ts_experts_args& a, int64_t* starts) {
  const int64_t chosen = width_of(a.routes) / 2;
  for (int64_t row = 0; row < a.x.rows; ++row) {
    const float* numbers = numbers_of(a, row);
    for (int64_t i = 0; i < chosen; ++i) {
      if (!(numbers[i] >= 0 && numbers[i] < static_cast<float>(a.gate_up->experts + a.idle))) return false;
      const int64_t expert = static_cast<int64_t>(numbers[i]);
      if (static_cast<float>(expert) != numbers[i]) return false;
      for (int64_t before = 0; before < i; ++before) {
        if (numbers[before] == numbers[i]) return false;
      }
      if (expert < a.gate_up->experts) ++starts[expert + 1];
    }
  }
  return true;
}

// Turns counts into starts and puts every pair in its place.
void sort_pairs(Experts& all) {
  const int64_t chosen = width_of(all.a.routes) / 2;
  int64_t next[kMostExperts];
  for (int64_t e = 0; e < all.a.gate_up->experts; ++e) next[e] = all.starts[e];
  for (int64_t row = 0; row < all.a.x.rows; ++row) {
    const float *numbers = numbers_of(all.a, row), *weights = numbers - chosen;
    for (int64_t i = 0; i < chosen; ++i) {
      const int64_t expert = static_cast<int64_t>(numbers[i]);
      if (expert < all.a.gate_up->experts) all.pairs[next[expert]++] = {row, weights[i]};
    }
  }
}

// One product of `rows` rows. The caller lays out the memory of these rows; the product's room is shared.
Job product(const Experts& all, const ts_weight& bank, int64_t expert, int64_t rows, int64_t gated, Finish finish) {
  Job job = make_job(matrix_of(bank, expert), nullptr, 0, nullptr, 0, gated, finish);
  job.tokens = rows;
  job.row_splits = 1;
  lay_out(job, all.context, nullptr, all.num_together);
  return job;
}

Part part_of(const Experts& all, int64_t expert, int64_t rows, Arena& arena) {
  const ts_experts_args& a = all.a;
  const bool silu = is_silu(a);
  Part part = {};
  part.gate_up = product(all, *a.gate_up, expert, rows, silu ? a.down->columns : 0, silu ? finish_silu : finish_store);
  part.down = product(all, *a.down, expert, rows, 0, finish_store);
  Job &first = part.gate_up, &second = part.down;
  first.out_stride = second.x_stride = silu ? a.down->columns : a.gate_up->rows;
  second.x = first.out = arena.take<float>(rows * first.out_stride);
  first.x_stride = a.gate_up->columns;
  if (!is_integer_kind(first.w.kind)) first.x = arena.take<float>(rows * first.x_stride);
  second.out_stride = a.down->rows;
  second.out = arena.take<float>(rows * second.out_stride);
  for (Job* job : {&first, &second}) {
    if (is_integer_kind(job->w.kind)) arena.used += lay_out_rows(job->xq, job->w, job->padded, job->groups, arena.at());
  }
  return part;
}

int64_t tasks_of(const Job& job) { return (job.panels + job.panels_each - 1) / job.panels_each; }

// Lays out the wave that begins with pair `begin`, and returns its end. Without scratch memory it stores nothing and only counts memory.
int64_t lay_out_wave(Experts& all, int64_t begin, Arena& arena) {
  const int64_t threads = ts_threads(all.context);
  int64_t room_bytes = 0, pair = begin, expert = 0;
  const int64_t most = smaller(all.all_pairs() - begin, kWavePairs * threads);  // a wave ends with the part that reaches it
  all.parts = arena.take<Part>(most);
  all.count = all.blocks = all.gate_tasks = all.down_tasks = 0;
  while (pair - begin < most) {
    while (all.starts[expert + 1] <= pair) ++expert;
    const int64_t rows = smaller(kWholeRows, all.starts[expert + 1] - pair);
    Part part = part_of(all, expert, rows, arena);
    part.pairs = all.pairs == nullptr ? nullptr : all.pairs + pair;  // the pairs do not exist yet where memory is only counted
    part.first_block = all.blocks;
    part.first_gate = all.gate_tasks;
    part.first_down = all.down_tasks;
    all.blocks += blocks_of(rows);
    all.gate_tasks += tasks_of(part.gate_up);
    all.down_tasks += tasks_of(part.down);
    room_bytes = larger(room_bytes, larger(part.gate_up.room_bytes, part.down.room_bytes));
    if (arena.scratch != nullptr) all.parts[all.count] = part;
    ++all.count;
    pair += rows;
  }
  all.gathered = arena.take<float>(threads * kRowBlock * kMaxGroup);
  uint8_t* room = arena.take<uint8_t>(threads * room_bytes);
  for (int64_t i = 0; arena.scratch != nullptr && i < all.count; ++i) {
    for (Job* job : {&all.parts[i].gate_up, &all.parts[i].down}) {
      job->room = room;
      job->room_bytes = room_bytes;
    }
  }
  return pair;
}

// The part that has task `index`. first: the field with the number of a part's first task.
const Part& part_with(const Experts& all, int64_t Part::*first, int64_t index) {
  int64_t low = 0, high = all.count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (all.parts[middle].*first <= index ? low : high) = middle;
  }
  return all.parts[low];
}

// Copies columns [first, first + width) of a row of x, multiplied by the pair's weight where inputs are weighted.
void copy_row(const Experts& all, const Pair& pair, int64_t first, int64_t width, float* to) {
  const float* from = all.a.x.data + pair.row * all.a.x.stride + first;
  if (all.a.weigh_inputs == 0) {
    memcpy(to, from, static_cast<size_t>(width) * 4);
    return;
  }
  for (int64_t i = 0; i < width; ++i) to[i] = from[i] * pair.weight;
}

void gather_task(void* arg, int64_t index, int32_t thread) {
  const Experts& all = *static_cast<const Experts*>(arg);
  const Part& part = part_with(all, &Part::first_block, index);
  const Job& job = part.gate_up;
  const int64_t row = (index - part.first_block) * kRowBlock, rows = smaller(kRowBlock, job.tokens - row);
  const Pair* pairs = part.pairs + row;
  if (!is_integer_kind(job.w.kind)) {
    for (int64_t r = 0; r < rows; ++r) copy_row(all, pairs[r], 0, job.x_stride, const_cast<float*>(job.x) + (row + r) * job.x_stride);
    return;
  }
  float* gathered = all.gathered + thread * kRowBlock * kMaxGroup;
  for (int64_t g = 0; g < job.groups; ++g) {
    const int64_t first = g * job.w.group, width = smaller(job.w.columns - first, job.w.group);
    for (int64_t r = 0; r < rows; ++r) copy_row(all, pairs[r], first, width, gathered + r * width);
    round_block(job, row, rows, g, gathered, width);
  }
}

void multiply_part(const Job& job, int64_t task, int32_t thread) {
  const int64_t panel = task * job.panels_each;
  multiply_panels(job, panel, smaller(job.panels_each, job.panels - panel), 0, job.tokens, thread, place_of(job, panel, 0));
}

void gate_up_task(void* arg, int64_t index, int32_t thread) {
  const Part& part = part_with(*static_cast<const Experts*>(arg), &Part::first_gate, index);
  multiply_part(part.gate_up, index - part.first_gate, thread);
}

void down_task(void* arg, int64_t index, int32_t thread) {
  const Part& part = part_with(*static_cast<const Experts*>(arg), &Part::first_down, index);
  multiply_part(part.down, index - part.first_down, thread);
}

// The first `width` columns of some rows.
ts_value corner(float* data, int64_t stride, int64_t rows, int64_t width) { return {data, stride, rows, 1, width}; }

void middle_task(void* arg, int64_t index, int32_t) {
  const Experts& all = *static_cast<const Experts*>(arg);
  const Part& part = part_with(all, &Part::first_block, index);
  const Job& job = part.down;
  const int64_t row = (index - part.first_block) * kRowBlock, rows = smaller(kRowBlock, job.tokens - row);
  float* middle = part.gate_up.out + row * job.x_stride;
  if (!is_silu(all.a)) {  // shapes and kinds were checked before
    const ts_value inner = corner(middle, job.x_stride, rows, job.w.columns), both = corner(middle, job.x_stride, rows, job.x_stride);
    if (has_gate(all.a)) run(all.context, ts_gate_args{inner, both, all.a.activation, all.a.limit, all.a.shift, all.a.hold_values});
    else run(all.context, ts_pointwise_args{inner, activation_program(all.a.activation), {}, {}, {}, 0.0, 0.0});
  }
  if (!is_integer_kind(job.w.kind)) return;
  for (int64_t g = 0; g < job.groups; ++g) round_block(job, row, rows, g, middle + g * job.w.group, job.x_stride);
}

// Adds weight * the result of `down` to out, for some columns of all rows.
void add_task(void* arg, int64_t index, int32_t) {
  const Experts& all = *static_cast<const Experts*>(arg);
  const ts_value& out = all.a.out;
  const int64_t first = index * kColumnsEach, width = smaller(kColumnsEach, width_of(out) - first);
  for (int64_t row = 0; all.first_wave && row < out.rows; ++row) {
    memset(out.data + row * out.stride + first, 0, static_cast<size_t>(width) * 4);
  }
  for (int64_t i = 0; i < all.count; ++i) {
    const Part& part = all.parts[i];
    for (int64_t r = 0; r < part.down.tokens; ++r) {
      const float* made = part.down.out + r * part.down.out_stride + first;
      const float weight = all.a.weigh_inputs != 0 ? 1.0f : part.pairs[r].weight;
      float* to = out.data + part.pairs[r].row * out.stride + first;
      for (int64_t c = 0; c < width; ++c) to[c] += weight * made[c];
    }
  }
}

// Runs the tasks between products. With few pairs this thread runs them all, because waking the others would take longer.
void run_between(Experts& all, int64_t pairs, int64_t tasks, ts_task task) {
  if (pairs * width_of(all.a.x) > kSerialElements) return ts_parallel(all.context, tasks, task, &all);
  for (int64_t i = 0; i < tasks; ++i) task(&all, i, 0);
}

void run_wave(Experts& all, int64_t pairs) {
  run_between(all, pairs, all.blocks, gather_task);
  ts_parallel(all.context, all.gate_tasks, gate_up_task, &all);
  run_between(all, pairs, all.blocks, middle_task);
  ts_parallel(all.context, all.down_tasks, down_task, &all);
  run_between(all, pairs, (width_of(all.a.out) + kColumnsEach - 1) / kColumnsEach, add_task);
}

int32_t check(const ts_experts_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.x.rows >= kMostRows || width_of(a.rows) != width_of(a.x) || width_of(a.pairs) != 2) return TS_BAD_SHAPE;
  if (width_of(a.middle) != (is_silu(a) ? a.down->columns : a.gate_up->rows)) return TS_BAD_SHAPE;
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  return a.rows.rows != a.x.rows || a.middle.rows != a.x.rows || a.pairs.rows != a.x.rows ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_experts_args& a) {
  const int32_t status = check(a);
  if (status != TS_OK) return status;
  Experts all = {context, a, nullptr, {}, nullptr, 0, 0, 0, 0, nullptr, 0, true};
  if (!count_rows(a, all.starts)) return TS_BAD_INDEX;
  for (int64_t e = 0; e < a.gate_up->experts; ++e) {
    all.num_together += all.starts[e + 1] > 0;
    all.starts[e + 1] += all.starts[e];
  }
  all.num_together = larger(1, smaller(all.num_together, kWavePairs * ts_threads(context)));
  Arena arena = {nullptr, 0};
  arena.take<Pair>(all.all_pairs());
  const int64_t pair_bytes = arena.used;
  int64_t bytes = 0, pair = 0;
  do {
    arena.used = pair_bytes;
    pair = lay_out_wave(all, pair, arena);
    bytes = larger(bytes, arena.used);
  } while (pair < all.all_pairs());
  arena.scratch = static_cast<uint8_t*>(ts_scratch(context, static_cast<size_t>(bytes)));
  if (arena.scratch == nullptr) return TS_NO_MEMORY;
  all.pairs = reinterpret_cast<Pair*>(arena.scratch);
  sort_pairs(all);
  pair = 0;
  do {
    arena.used = pair_bytes;
    const int64_t end = lay_out_wave(all, pair, arena);
    run_wave(all, end - pair);
    pair = end;
    all.first_wave = false;
  } while (pair < all.all_pairs());
  return TS_OK;
}

}  // namespace twostroke
