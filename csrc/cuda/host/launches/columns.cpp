// The launchers of ops that multiply few columns of a result: low_rank, and best_losses with add_losses.
#include "twostroke/cuda/host/product.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {
namespace {

LowRankArgs with_bank(LowRankArgs args, const ts_weight& bank, int64_t parts) {
  args.data = static_cast<const uint8_t*>(bank.data);
  args.panels = divide_up(bank.rows, kPanel);
  args.panel_bytes = panel_bytes(bank.kind, bank.columns);  // ranks are whole steps, because no kind pads them
  args.width = bank.rows;
  args.kind = bank.kind;
  args.parts = parts;
  return args;
}

constexpr int64_t kBestRows = 16;  // rows whose largest results are multiplied together
static_assert(kBestRows <= kMostFirst, "first_remainders computes them together");
constexpr int32_t kBestThreads = 64;

// The places in scratch memory, each at a multiple of 256 bytes.
struct BestRoom {
  int64_t padded, made, values, bytes;

  BestRoom(const ts_weight& w, int64_t count) : padded(padded_columns(w.kind, w.columns)) {
    made = round_up(kBestRows * count * 4);
    values = made + round_up(2 * kBestRows * padded * 4);
    bytes = values + round_up(kBestRows * count * padded * 4);
  }
};

// Starts the kernels that compute the remainders of `rows` rows, and unpack the rows of the matrix.
int32_t start_factors(ts_context& device, const ts_weight& w, const ts_value& x, int64_t row, int64_t rows, const BestArgs& best, float* made, float* values) {
  FirstArgs lose = {};
  lose.x = x.data + row * x.stride;
  lose.made = made;
  lose.x_stride = x.stride;
  lose.columns = w.columns;
  lose.padded = best.padded;
  lose.fine = stored_layout(w.kind).fine;
  lose.group = lose.fine ? 4 * kWarp : activation_columns(w);
  lose.units = divide_up(best.padded, lose.group);
  lose.parts = divide_up(lose.units, kQuantizeThreads / kWarp);
  lose.count = rows;
  lose.rotated = w.rotated;
  for (int32_t i = 0; i < rows; ++i) lose.rows[i] = i;
  const int32_t status = start(device, kKernel_first_remainders, rows * lose.parts, kQuantizeThreads, &lose);
  if (status != TS_OK) return status;
  const EmbedArgs embed = {values, static_cast<const uint8_t*>(w.data), w.scales, best.ids, best.padded, best.padded, best.padded,
                           panel_bytes(w.kind, best.padded), w.kind, static_cast<int32_t>(w.group), stored_layout(w.kind), 0};
  return start_fours(device, kKernel_embed, rows * best.count, best.padded, &embed);
}

}  // namespace

int32_t launch(ts_context& device, const ts_low_rank_args& a) {
  int32_t status = check_shapes(a);
  if (status != TS_OK || a.out.rows == 0) return status;
  LowRankArgs args = {};
  args.out = a.out.data + a.first;
  args.middle = a.middle.data;
  args.x = a.x.data;
  args.ranks = a.ranks.data;
  args.down_scales = a.down->scales;
  args.up_scales = a.up->scales;
  args.adapters = mirrored(device, a.adapters.data, a.adapters.count);
  if (args.adapters == nullptr) return TS_BAD_POINTER;
  args.out_stride = a.out.stride;
  args.middle_stride = a.middle.stride;
  args.x_stride = a.x.stride;
  args.most_ranks = a.down->columns;
  if (a.out.data != a.product.data) {
    const ts_gather_rows_args copy = {a.out, a.product, {}};
    status = start_fours(device, kKernel_gather_rows, a.out.rows, width_of(a.out), &copy);
  }
  const LowRankArgs down = with_bank(args, *a.down, divide_up(args.most_ranks * kLowRankThreads, 2 * kFourThreads));
  if (status == TS_OK) status = start(device, kKernel_low_rank_down, a.out.rows * down.parts, kFourThreads, &down);
  if (args.most_ranks > INT32_MAX / kLowRankThreads) return TS_BAD_SHAPE;
  const LowRankArgs up = with_bank(args, *a.up, parts_of(a.up->rows));
  return status == TS_OK ? start(device, kKernel_low_rank_up, a.out.rows * up.parts, kThreads, &up) : status;
}

int32_t launch(ts_context& device, const ts_best_losses_args& a) {
  int32_t status = check_shapes(a);
  if (status != TS_OK || a.out.rows == 0) return status;
  const ts_weight& w = *a.weight;
  const int64_t count = width_of(a.out) / 2;
  const BestRoom room(w, count);
  const bool rounded = is_integer_kind(w.kind);
  const uint64_t scratch = rounded ? scratch_of(device, room.bytes, &status) : 0;
  const auto at = [&](int64_t bytes) { return reinterpret_cast<float*>(scratch + static_cast<uint64_t>(bytes)); };
  for (int64_t row = 0; row < a.out.rows && status == TS_OK; row += kBestRows) {
    const int64_t rows = a.out.rows - row < kBestRows ? a.out.rows - row : kBestRows;
    const float* lost = at(room.made) + rows * room.padded;
    const BestArgs args = {a.out.data + row * a.out.stride, a.logits.data + row * a.logits.stride, reinterpret_cast<int32_t*>(at(0)), lost,
                           at(room.values), a.out.stride, a.logits.stride, width_of(a.logits), a.first, w.rows, room.padded,
                           static_cast<int32_t>(count), rounded};
    status = start(device, kKernel_best_numbers, rows, kThreads, &args);
    if (status == TS_OK && rounded) status = start_factors(device, w, a.x, row, rows, args, at(room.made), at(room.values));
    if (status == TS_OK && rounded) status = start(device, kKernel_best_losses, rows * count, kBestThreads, &args);
  }
  return status;
}

int32_t launch(ts_context& device, const ts_add_losses_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK && a.out.rows > 0 ? start(device, kKernel_add_losses, a.out.rows, kWarp, &a) : status;
}

}  // namespace cuda
}  // namespace twostroke
