// Products of the rows at the first positions of a text, whose inputs have two codes. Both codes are rows of one product, which goes to
// scratch memory while `out` has its old content. The finished rows replace those of `out` after all rows were multiplied as usual.
#include "twostroke/cuda/host/product.h"
#include "twostroke/cuda/machine/words.h"
#include "twostroke/products/first_positions.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kMostCodes = 2 * kMostFirst;
constexpr int64_t kFineUnit = 4 * kWarp;  // the columns that a warp has at once

// The places in scratch memory, each at a multiple of 256 bytes.
struct FirstRoom {
  int64_t padded, made, products, kept, bytes;

  explicit FirstRoom(const ts_weight& w) : padded(padded_columns(w.kind, w.columns)) {
    made = product_scratch(w, kMostCodes);
    products = made + round_up(kMostCodes * padded * 4);
    kept = products + round_up(kMostCodes * w.rows * 4);
    bytes = kept + round_up(kMostFirst * w.rows * 4);
  }
};

FirstArgs arguments_of(const ts_weight& w, uint64_t scratch, const FirstRows& first, const ProductRows& rows) {
  const FirstRoom room(w);
  const auto at = [&](int64_t bytes) { return reinterpret_cast<float*>(scratch + static_cast<uint64_t>(bytes)); };
  FirstArgs args = {};
  args.x = rows.x;
  args.made = at(room.made);
  args.products = at(room.products);
  args.kept = at(room.kept);
  args.out = rows.out;
  args.bias = w.bias;
  args.x_stride = rows.x_stride;
  args.out_stride = rows.out_stride;
  args.columns = w.columns;
  args.padded = room.padded;
  args.fine = stored_layout(w.kind).fine;
  args.group = args.fine ? kFineUnit : activation_columns(w);
  args.units = divide_up(room.padded, args.group);
  args.parts = divide_up(args.units, kQuantizeThreads / kWarp);
  args.count = first.count;
  args.sums = w.rows;
  args.width = rows.gated ? w.rows / 2 : w.rows;
  args.rotated = w.rotated;
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
  const int32_t status = start(device, kKernel_first_remainders, first.count * args.parts, kQuantizeThreads, &args);
  if (status != TS_OK) return status;
  ts_weight plain = w;
  plain.bias = nullptr;
  plain.rotated = 0;  // the rows are rotated already, and padded
  plain.columns = args.padded;
  return start_product(device, plain, scratch, kMostCodes, {args.made, args.padded, 2 * args.count, args.products, w.rows, false, nullptr});
}

int32_t put_first(ts_context& device, const ts_weight& w, uint64_t scratch, const FirstRows& first, const ProductRows& rows) {
  if (first.count == 0) return TS_OK;
  const FirstArgs args = arguments_of(w, scratch, first, rows);
  return start_fours(device, kKernel_first_put, first.count, args.width, &args);
}

}  // namespace cuda
}  // namespace twostroke
