// The op experts for many rows. The device puts the pairs of a row and an expert into the order of experts, so that weights are read once
// for all rows of a tile. Only the device knows how many pairs an expert has. So the host reserves room for the worst case, and tiles
// without pairs end at once.
#include "twostroke/cuda/host/product.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kTiledPairs = 4096;  // the most pairs that are computed at once
constexpr int64_t kRowsApart = 1;  // up to this many rows, hardly two choose the same expert

// Scratch memory for some rows: their pairs, the places of these pairs in tiles, both products, and the rounded activations of one product.
struct TiledRoom {
  int64_t chosen, experts, rows;  // rows: the rows of x that are computed at once
  int64_t matrices, weights, counts, order, places, tiles, middle, results, rounded, bytes;

  explicit TiledRoom(const ts_experts_args& a) : chosen(width_of(a.routes) / 2), experts(a.gate_up->experts) {
    rows = kTiledPairs / chosen > 1 ? kTiledPairs / chosen : 1;
    const int64_t pairs = rows * chosen, most = most_places(pairs);
    matrices = 0;
    weights = matrices + round_up(4 * pairs);
    counts = weights + round_up(4 * pairs);
    order = counts + round_up(4 * experts);
    places = order + round_up(4 * most);
    tiles = places + round_up(4 * pairs);
    middle = tiles + round_up(4 * most / kNarrowTokens);
    results = middle + round_up(4 * most * a.gate_up->rows);
    rounded = results + round_up(4 * most * a.down->rows);
    const int64_t first = tiles_scratch(*a.gate_up, most), second = tiles_scratch(*a.down, most);
    bytes = rounded + (first > second ? first : second);
  }
  // The most places: each expert has whole tiles, and the sum is rounded up to whole tiles of kTileTokens.
  int64_t most_places(int64_t pairs) const {
    const int64_t begun = experts < pairs ? experts : pairs;
    return divide_up(pairs + begun * (kNarrowTokens - 1), kTileTokens) * kTileTokens;
  }
};

// The rows [first, first + count) of x.
struct TiledRows {
  ts_context& device;
  const ts_experts_args& a;
  const TiledRoom& room;
  uint64_t scratch;
  int64_t first, count;

  int64_t pairs() const { return count * room.chosen; }
  int64_t places() const { return room.most_places(pairs()); }
  float* floats(int64_t at) const { return reinterpret_cast<float*>(scratch + static_cast<uint64_t>(at)); }
  int32_t* numbers(int64_t at) const { return reinterpret_cast<int32_t*>(scratch + static_cast<uint64_t>(at)); }

  int32_t place() const {
    const ChoiceArgs choices = {a.routes.data + first * a.routes.stride, numbers(room.matrices), floats(room.weights), a.routes.stride,
                                count, room.chosen, room.experts, a.idle};
    const PlaceArgs args = {numbers(room.matrices), numbers(room.counts), numbers(room.order), numbers(room.places), numbers(room.tiles),
                            static_cast<int32_t>(pairs()), static_cast<int32_t>(room.experts), static_cast<int32_t>(places() / kNarrowTokens)};
    int32_t status = start(device, kKernel_order_choices, divide_up(count, kThreads), kThreads, &choices);
    if (status == TS_OK) status = start(device, kKernel_count_pairs, room.experts, kPlaceThreads, &args);
    return status == TS_OK ? start(device, kKernel_place_pairs, room.experts, kPlaceThreads, &args) : status;
  }
  int32_t multiply(const ts_weight& bank, const float* x, int64_t x_stride, bool by_pair, float* out) const {
    const bool weighed = by_pair && a.weigh_inputs != 0;
    const TilePlaces tiles = {numbers(room.order), numbers(room.tiles), weighed ? floats(room.weights) : nullptr, by_pair ? room.chosen : 0};
    return start_tiles(device, bank, scratch + static_cast<uint64_t>(room.rounded), {x, x_stride, places(), out, bank.rows, false, nullptr}, &tiles);
  }
  int32_t run() const {
    int32_t status = place();
    if (status == TS_OK) status = multiply(*a.gate_up, a.x.data + first * a.x.stride, a.x.stride, true, floats(room.middle));
    if (status == TS_OK) status = activate_pairs(device, a, floats(room.middle), places());
    if (status == TS_OK) status = multiply(*a.down, floats(room.middle), a.gate_up->rows, false, floats(room.results));
    const PairResults results = {floats(room.results), floats(room.weights), numbers(room.places)};
    return status == TS_OK ? add_pairs(device, a, first, count, results) : status;
  }
};

}  // namespace

bool fits_tiles(const ts_experts_args& a) {
  return a.x.rows > kRowsApart && is_integer_kind(a.gate_up->kind) && is_integer_kind(a.down->kind);
}

int32_t run_in_tiles(ts_context& device, const ts_experts_args& a) {
  const TiledRoom room(a);
  int32_t status = TS_OK;
  const uint64_t scratch = scratch_of(device, room.bytes, &status);
  for (int64_t first = 0; first < a.x.rows && status == TS_OK; first += room.rows)
    status = TiledRows{device, a, room, scratch, first, a.x.rows - first < room.rows ? a.x.rows - first : room.rows}.run();
  return status;
}

}  // namespace cuda
}  // namespace twostroke
