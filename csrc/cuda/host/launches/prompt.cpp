// Products of int8 and int4 weights with the rows of a prompt, on devices whose image has the products of warpgroups (linear_prompt.cpp).
#include "twostroke/cuda/host/product.h"
#include "twostroke/products/packed.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kPiece = 128;  // columns of one product

bool is_prompt_group(int64_t group) { return group == kPiece || group == 2 * kPiece; }

// The places of rounded rows in scratch memory: whole groups, and whole parts of kPromptPart rows.
struct PromptRoom {
  int64_t groups, room, scales, bytes;

  PromptRoom(const ts_weight& w, int64_t rows)
      : groups(divide_up(padded_columns(w.kind, w.columns), w.group)), room(divide_up(rows, kPromptPart) * kPromptPart),
        scales(room * groups * w.group), bytes(round_up(scales + room * groups * 4)) {}
};

// Returns how many parts of kPromptPart rows a block has. A multiprocessor has one block at a time. Beginning and end of a block take as long
// as a fifth of a part.
int64_t best_parts(const ts_context& device, int64_t panels, int64_t rows) {
  const auto time = [&](int64_t parts) {
    return divide_up(divide_up(panels, 2) * divide_up(rows, parts * kPromptPart), device.multiprocessors) * (5 * parts + 1);
  };
  return time(3) <= time(2) ? 3 : 2;
}

KernelNumber prompt_kernel(const ts_weight& w, int64_t parts) {
  static const KernelNumber kKernels[2][2][2] = {
      {{kKernel_linear_prompt_int8_1x2, kKernel_linear_prompt_int8_1x3}, {kKernel_linear_prompt_int8_2x2, kKernel_linear_prompt_int8_2x3}},
      {{kKernel_linear_prompt_int4_1x2, kKernel_linear_prompt_int4_1x3}, {kKernel_linear_prompt_int4_2x2, kKernel_linear_prompt_int4_2x3}}};
  return kKernels[w.kind == TS_W_INT4][w.group == 2 * kPiece][parts - 2];
}

}  // namespace

bool fits_prompt(const ts_context& device, const ts_weight& w, int64_t rows) {
  const bool whole = w.kind == TS_W_INT8 || w.kind == TS_W_INT4;
  return device.has_warpgroups && whole && is_prompt_group(w.group) && rows > kTileTokens;
}

bool gates_prompt(const ts_context& device, const ts_weight& w, int64_t rows) { return fits_prompt(device, w, rows) && w.rows % (2 * kPanel) == 0; }

int64_t prompt_scratch(const ts_weight& w, int64_t rows) { return is_prompt_group(w.group) ? PromptRoom(w, rows).bytes : 0; }

int32_t start_prompt(ts_context& device, const ts_weight& w, uint64_t scratch, const ProductRows& rows) {
  const PromptRoom room(w, rows.count);
  const RoundArgs round = common_round_args(w, rows, scratch, room.room, room.scales);
  const int64_t warps = rows.count * divide_up(room.groups * (w.group / kPiece), kPromptPiecesAtOnce);
  const int32_t status = start(device, kKernel_quantize_prompt, divide_up(warps, kTileRoundWarps), kTileRoundThreads, &round);
  if (status != TS_OK) return status;
  TileArgs args = common_tile_args(w, rows, round);
  const int64_t parts = best_parts(device, args.panels, rows.count);
  args.tiles = static_cast<int32_t>(divide_up(rows.count, parts * kPromptPart));
  const int64_t blocks = divide_up(args.panels, 2) * args.tiles;  // each half of a gated product has whole panels
  if (blocks > INT32_MAX) return TS_BAD_SHAPE;
  return start(device, prompt_kernel(w, parts), blocks, kPromptTileThreads, &args);
}

}  // namespace cuda
}  // namespace twostroke
