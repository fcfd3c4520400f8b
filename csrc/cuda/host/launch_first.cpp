// Products of the rows at the first positions of a text, whose inputs have two codes. Both products and their finish go to scratch memory
// while `out` has its old content. They replace the rows of `out` after all rows were multiplied as usual.
#include "twostroke/cuda/host/product.h"
#include "twostroke/first_positions.h"

namespace twostroke {
namespace cuda {
namespace {

// The places in scratch memory, each at a multiple of 256 bytes.
struct FirstRoom {
  int64_t padded, own, lost, sums, results, bytes;

  explicit FirstRoom(const ts_weight& w) : padded(padded_columns(w.kind, w.columns)) {
    own = product_scratch(w, kMostFirst);
    lost = own + round_up(kMostFirst * w.columns * 4);
    sums = lost + round_up(kMostFirst * padded * 4);
    results = sums + 2 * round_up(kMostFirst * w.rows * 4);
    bytes = results + round_up(kMostFirst * w.rows * 4);
  }
};

FirstArgs arguments_of(const ts_weight& w, uint64_t scratch, const FirstRows& first, const ProductRows& rows) {
  const FirstRoom room(w);
  const auto at = [&](int64_t bytes) { return reinterpret_cast<float*>(scratch + static_cast<uint64_t>(bytes)); };
  FirstArgs args = {};
  args.x = rows.x;
  args.own = at(room.own);
  args.lost = at(room.lost);
  args.first = at(room.sums);
  args.second = at(room.sums + round_up(kMostFirst * w.rows * 4));
  args.results = at(room.results);
  args.out = rows.out;
  args.bias = w.bias;
  args.x_stride = rows.x_stride;
  args.out_stride = rows.out_stride;
  args.columns = w.columns;
  args.padded = room.padded;
  args.group = activation_columns(w);
  args.groups = divide_up(room.padded, args.group);
  args.sums = w.rows;
  args.width = rows.gated ? w.rows / 2 : w.rows;
  args.rotated = w.rotated;
  args.fine = stored_layout(w.kind).fine;
  args.add = rows.add;
  args.gated = rows.gated;
  for (int32_t i = 0; i < first.count; ++i) args.rows[i] = first.rows[i];
  return args;
}

}  // namespace

int64_t first_scratch(const ts_weight& w) { return FirstRoom(w).bytes; }

int64_t take_rows(FirstRows& first, const ts_weight& w, const ts_indices& positions, int64_t from, int64_t most) {
  first.count = 0;
  if (positions.data == nullptr || !is_integer_kind(w.kind)) return most;
  for (int64_t row = 0; row < most; ++row) {
    if (positions.data[from + row] >= kFirstPositions) continue;
    if (first.count == kMostFirst) return row;
    first.rows[first.count++] = static_cast<int32_t>(row);
  }
  return most;
}

int32_t start_first(ts_context& device, const ts_weight& w, uint64_t scratch, const FirstRows& first, const ProductRows& rows) {
  if (first.count == 0) return TS_OK;
  const FirstArgs args = arguments_of(w, scratch, first, rows);
  int32_t status = start(device, kKernel_first_remainders, first.count, kQuantizeThreads, &args);
  ts_weight plain = w;
  plain.bias = nullptr;
  if (status == TS_OK) status = start_product(device, plain, scratch, kMostFirst, {args.own, w.columns, first.count, args.first, w.rows, false, nullptr});
  plain.rotated = 0;  // remainders are rotated already, and padded
  plain.columns = args.padded;
  if (status == TS_OK) status = start_product(device, plain, scratch, kMostFirst, {args.lost, args.padded, first.count, args.second, w.rows, false, nullptr});
  return status == TS_OK ? start_fours(device, kKernel_first_sums, first.count, args.width, &args) : status;
}

int32_t put_first(ts_context& device, const ts_weight& w, uint64_t scratch, const FirstRows& first, const ProductRows& rows) {
  if (first.count == 0) return TS_OK;
  const FirstArgs args = arguments_of(w, scratch, first, rows);
  return start_fours(device, kKernel_first_put, first.count, args.width, &args);
}

}  // namespace cuda
}  // namespace twostroke
