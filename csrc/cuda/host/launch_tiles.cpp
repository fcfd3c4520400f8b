// Products of whole-number weights with many rows of activations: the rows rounded into tiles, then the matrix units. More token tiles of
// one panel run at the same time than not, so that weights are read from memory once.
// Knows: kernels' arguments. Must not know: ops.
#include "twostroke/cuda/product.h"
#include "twostroke/packed.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kSmallGroup = 256;  // columns whose sums are within 2^22: 256 * 128 * 127
constexpr int32_t kSmallBits = 0x4b400000;

// Tiles of one kernel.
struct TileShape {
  KernelNumber kernel;
  int64_t tokens, panels;
  int32_t threads;
};

TileShape shape_of(int32_t kind, int64_t rows) {
  const bool int4 = kind == TS_W_INT4;
  if (rows <= kNarrowTokens) return {int4 ? kKernel_linear_narrow_int4 : kKernel_linear_narrow_int8, kNarrowTokens, 1, kNarrowTileThreads};
  return {int4 ? kKernel_linear_tile_int4 : kKernel_linear_tile_int8, kTileTokens, kTilePanels, kTileThreads};
}

}  // namespace

bool fits_tiles(const ts_weight& w, const ProductRows& rows) {
  const bool aligned = reinterpret_cast<uint64_t>(w.data) % 16 == 0;
  return (w.kind == TS_W_INT8 || w.kind == TS_W_INT4) && aligned && rows.matrices == nullptr && rows.count > kFewRows;
}

int64_t tiles_scratch(const ts_weight& w, int64_t rows) {
  const int64_t padded = padded_columns(w.kind, w.columns), room = divide_up(rows, kTileTokens) * kTileTokens;
  return room * padded + round_up(room * divide_up(padded, w.group) * static_cast<int64_t>(sizeof(TilePair)));
}

int32_t start_tiles(ts_context& device, const ts_weight& w, uint64_t scratch, const ProductRows& rows) {
  const int64_t padded = padded_columns(w.kind, w.columns), groups = divide_up(padded, w.group);
  const int64_t room = divide_up(rows.count, kTileTokens) * kTileTokens, panels = divide_up(w.rows, kPanel);
  RoundArgs round = {};
  round.x = rows.x;
  round.q = reinterpret_cast<int8_t*>(scratch);
  round.pairs = reinterpret_cast<TilePair*>(scratch + static_cast<uint64_t>(room * padded));
  round.x_stride = rows.x_stride;
  round.rows = rows.count;
  round.room = room;
  round.columns = w.columns;
  round.padded = padded;
  round.group = w.group;
  round.groups = groups;
  round.added = w.group <= kSmallGroup ? kSmallBits : 0;
  const int32_t status = start(device, kKernel_quantize_tiles, divide_up(rows.count * groups, kRoundWarps), kRoundThreads, &round);
  if (status != TS_OK) return status;
  const TileShape shape = shape_of(w.kind, rows.count);
  TileArgs args = {};
  args.out = rows.out;
  args.data = static_cast<const uint8_t*>(w.data);
  args.scales = w.scales;
  args.bias = w.bias;
  args.q = round.q;
  args.pairs = round.pairs;
  args.out_stride = rows.out_stride;
  args.tokens = rows.count;
  args.room = room;
  args.rows = w.rows;
  args.panel_bytes = panel_bytes(w.kind, padded);
  args.group = w.group;
  args.groups = static_cast<int32_t>(groups);
  args.steps = static_cast<int32_t>(padded / kStep);
  args.panels = static_cast<int32_t>(panels);
  args.tiles = static_cast<int32_t>(divide_up(rows.count, shape.tokens));
  args.add = rows.add;
  args.small = w.group <= kSmallGroup;
  return start(device, shape.kernel, divide_up(panels, shape.panels) * args.tiles, shape.threads, &args);
}

}  // namespace cuda
}  // namespace twostroke
