// The launchers of route, sparse_mixer and experts. Only the device knows which experts the rows choose. Each row has as many pairs of a
// row and an expert as it chooses experts, and every pair is multiplied by its own matrix. So a row's bits depend on that row alone, and
// nothing waits for the host.
#include "twostroke/cuda/host/product.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {
namespace {

static_assert(kMostExperts == kMostChoices, "kernels have room for every expert");

int32_t check(const ts_experts_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t chosen = width_of(a.routes) / 2;
  if (chosen < 1 || chosen > kMostExperts) return TS_BAD_SHAPE;
  return a.activation < 0 || a.activation >= kActivations ? TS_BAD_FORMAT : TS_OK;
}

// Scratch memory for some rows: their pairs, the pairs' rows, both products, and the rounded activations of one product.
struct ExpertRoom {
  int64_t rows, pairs;  // rows: the rows of x that are computed at once
  int64_t weights, gathered, middle, results, rounded, bytes;

  explicit ExpertRoom(const ts_experts_args& a) {
    const int64_t chosen = width_of(a.routes) / 2;
    rows = kPairsAtOnce / chosen > 1 ? kPairsAtOnce / chosen : 1;
    pairs = rows * chosen;
    weights = round_up(4 * pairs);
    gathered = weights + round_up(4 * pairs);
    middle = gathered + round_up(4 * pairs * width_of(a.x));
    results = middle + round_up(4 * pairs * a.gate_up->rows);
    rounded = results + round_up(4 * pairs * a.down->rows);
    const int64_t first = product_scratch(*a.gate_up, pairs), second = product_scratch(*a.down, pairs);
    bytes = rounded + (first > second ? first : second);
  }
};

// The rows [first, first + count) of x. Their pairs lie in `room`, a part of the scratch memory.
struct SomeRows {
  ts_context& device;
  const ts_experts_args& a;
  const ExpertRoom& room;
  uint64_t scratch;
  int64_t first, count;

  int64_t chosen() const { return width_of(a.routes) / 2; }
  int64_t pairs() const { return count * chosen(); }
  float* floats(int64_t at) const { return reinterpret_cast<float*>(scratch + static_cast<uint64_t>(at)); }
  const int32_t* matrices() const { return reinterpret_cast<const int32_t*>(scratch); }

  int32_t order() const {
    const ChoiceArgs args = {a.routes.data + first * a.routes.stride, reinterpret_cast<int32_t*>(scratch), floats(room.weights), a.routes.stride,
                             count, chosen(), a.gate_up->experts, a.idle};
    return start(device, kKernel_order_choices, divide_up(count, kThreads), kThreads, &args);
  }
  int32_t gather() const {
    const int64_t width = width_of(a.x);
    const PairArgs args = {floats(room.gathered), a.x.data + first * a.x.stride, a.weigh_inputs != 0 ? floats(room.weights) : nullptr, width,
                           a.x.stride, chosen(), width, nullptr};
    return start_fours(device, kKernel_gather_pairs, pairs(), width, &args);
  }
  int32_t multiply(const ts_weight& bank, const float* x, int64_t x_stride, float* out) const {
    return start_product(device, bank, scratch + static_cast<uint64_t>(room.rounded), room.pairs,
                         {x, x_stride, pairs(), out, bank.rows, false, matrices()});
  }
  int32_t run() const {
    int32_t status = order();
    if (status == TS_OK) status = gather();
    if (status == TS_OK) status = multiply(*a.gate_up, floats(room.gathered), width_of(a.x), floats(room.middle));
    if (status == TS_OK) status = activate_pairs(device, a, floats(room.middle), pairs());
    if (status == TS_OK) status = multiply(*a.down, floats(room.middle), a.gate_up->rows, floats(room.results));
    return status == TS_OK ? add_pairs(device, a, first, count, {floats(room.results), floats(room.weights), nullptr}) : status;
  }
};

}  // namespace

int32_t activate_pairs(ts_context& device, const ts_experts_args& a, float* middle, int64_t rows) {
  const ts_value both = {middle, a.gate_up->rows, rows, 1, a.gate_up->rows}, inner = {middle, both.stride, rows, 1, a.down->columns};
  if (!has_gate(a)) return launch(device, ts_pointwise_args{inner, activation_program(a.activation), {}, {}, {}, 0.0, 0.0});
  return launch(device, ts_gate_args{inner, both, a.activation, a.limit, a.shift, a.hold_values});
}

int32_t add_pairs(ts_context& device, const ts_experts_args& a, int64_t first, int64_t count, const PairResults& results) {
  const int64_t width = a.down->rows;
  const PairArgs args = {a.out.data + first * a.out.stride, results.rows, a.weigh_inputs != 0 ? nullptr : results.weights,
                         a.out.stride, width, width_of(a.routes) / 2, width, results.places};
  return start_fours(device, kKernel_add_pairs, count, width, &args);
}

int32_t launch(ts_context& device, const ts_experts_args& a) {
  if (a.gate_up == nullptr || a.down == nullptr) return TS_BAD_POINTER;
  int32_t status = check(a);
  if (status != TS_OK) return status;
  if (fits_tiles(a)) return run_in_tiles(device, a);
  const ExpertRoom room(a);
  const uint64_t scratch = scratch_of(device, room.bytes, &status);
  for (int64_t first = 0; first < a.x.rows && status == TS_OK; first += room.rows)
    status = SomeRows{device, a, room, scratch, first, a.x.rows - first < room.rows ? a.x.rows - first : room.rows}.run();
  return status;
}

// Pairs of a row and a choice are in the order of the rows of x and of out, or x has one row for all choices of a row.
int32_t launch(ts_context& device, const ts_chosen_linear_args& a) {
  int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t chosen = a.out.heads, columns = a.weight->columns, outputs = a.weight->rows;
  const bool own = a.x.heads == chosen;
  if (a.out.stride != chosen * outputs || (own && a.x.stride != chosen * columns)) return TS_BAD_SHAPE;
  const int64_t rows = kPairsAtOnce / chosen > 1 ? kPairsAtOnce / chosen : 1, pairs = rows * chosen;
  const int64_t gathered = round_up(4 * pairs), rounded = gathered + round_up(4 * pairs * columns);
  const uint64_t scratch = scratch_of(device, rounded + product_scratch(*a.weight, pairs), &status);
  int32_t* matrices = reinterpret_cast<int32_t*>(scratch);
  for (int64_t first = 0; first < a.x.rows && status == TS_OK; first += rows) {
    const int64_t count = a.x.rows - first < rows ? a.x.rows - first : rows;
    const NumberArgs numbers = {a.routes.data + first * a.routes.stride, matrices, a.routes.stride, count, chosen, a.weight->experts};
    status = start(device, kKernel_choice_numbers, divide_up(count * chosen, kThreads), kThreads, &numbers);
    const float* x = a.x.data + first * a.x.stride;
    if (!own && status == TS_OK) {
      float* copies = reinterpret_cast<float*>(scratch + static_cast<uint64_t>(gathered));
      const PairArgs copy = {copies, x, nullptr, columns, a.x.stride, chosen, columns, nullptr};
      status = start_fours(device, kKernel_gather_pairs, count * chosen, columns, &copy);
      x = copies;
    }
    const ProductRows products = {x, columns, count * chosen, a.out.data + first * a.out.stride, outputs, false, matrices};
    if (status == TS_OK) status = start_product(device, *a.weight, scratch + static_cast<uint64_t>(rounded), pairs, products);
  }
  return status;
}

int32_t launch(ts_context& device, const ts_idle_share_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  return start(device, kKernel_idle_share, divide_up(a.out.rows, kThreads), kThreads, &a);
}

int32_t launch(ts_context& device, const ts_route_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start(device, kKernel_route, a.out.rows, kGroupThreads, &a) : status;
}

int32_t launch(ts_context& device, const ts_route_by_token_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int32_t* token_ids = mirrored(device, a.token_ids.data, a.token_ids.count);
  if (token_ids == nullptr) return TS_BAD_POINTER;
  const TokenRouteArgs args = {{a.out, a.logits, 1, {}, a.scores, 1, 1, 1, 0.0, a.added, a.factor, {}}, token_ids, a.table.data};
  return start(device, kKernel_route_by_token, a.out.rows, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_sparse_mixer_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start(device, kKernel_sparse_mixer, a.out.rows, kWarp, &a) : status;
}

}  // namespace cuda
}  // namespace twostroke
