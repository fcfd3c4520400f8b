// The launcher of low_rank.
#include "twostroke/cuda/host/launch.h"

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

}  // namespace cuda
}  // namespace twostroke
