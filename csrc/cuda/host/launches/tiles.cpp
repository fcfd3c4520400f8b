// Products of whole-number weights with many rows of activations. The rows are rounded into tiles, and then the matrix units multiply them.
// Mostly, all token tiles of one panel run at the same time, so that weights are read from memory once.
#include "twostroke/cuda/host/product.h"
#include "twostroke/products/packed.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kSmallGroup = 256;  // the most columns of a group whose sums are below 2^22: 256 * 128 * 127
constexpr int32_t kSmallBits = 0x4b400000;
constexpr int64_t kTileBlocks = 2;  // the blocks that a multiprocessor holds at once; those of linear_steps go through many tiles

// The shape of one kernel's tiles, which have `strip` rows of a matrix.
struct TileShape {
  KernelNumber kernel;
  int64_t tokens, strip;
  int32_t threads;
};

KernelNumber steps_kernel(int32_t kind) {
  switch (kind) {
    case TS_W_FLAT4: return kKernel_linear_steps_flat4;
    case TS_W_FLAT8: return kKernel_linear_steps_flat8;
    case TS_W_SUPER4_MIN: return kKernel_linear_steps_super4_min;
    case TS_W_SUPER6: return kKernel_linear_steps_super6;
    default: return kKernel_linear_steps;
  }
}

// The kernel for many rows. Kinds without such a kernel have the one for few rows.
KernelNumber wide_kernel(int32_t kind) {
  switch (kind) {
    case TS_W_FLAT4: return kKernel_linear_wide_flat4;
    case TS_W_FLAT8: return kKernel_linear_wide_flat8;
    case TS_W_SUPER4_MIN: return kKernel_linear_wide_super4_min;
    case TS_W_SUPER6: return kKernel_linear_wide_super6;
    default: return kKernel_linear_steps;
  }
}

// The shape for stored kinds. enough: whether tiles of kWideTokens give work to all multiprocessors.
TileShape stored_shape_of(int32_t kind, int64_t rows, bool bank, bool enough) {
  const KernelNumber few = steps_kernel(kind), wide = wide_kernel(kind);
  if (!bank && enough && rows > kStepTokens && wide != kKernel_linear_steps) return {wide, kWideTokens, kWideStrip, kWideThreads};
  return {few, rows <= kFewStepTokens || few == kKernel_linear_steps ? kFewStepTokens : kStepTokens, kStepStrip, kStepThreads};
}

// enough: whether the largest tiles give work to all multiprocessors.
TileShape shape_of(int32_t kind, int64_t rows, bool bank, bool enough) {
  const bool int4 = kind == TS_W_INT4;
  if (is_stored_kind(kind)) return stored_shape_of(kind, rows, bank, enough);
  if (bank) return {int4 ? kKernel_linear_bank_int4 : kKernel_linear_bank_int8, kNarrowTokens, kPanel, kNarrowTileThreads};
  if (rows <= kNarrowTokens || !enough) return {int4 ? kKernel_linear_narrow_int4 : kKernel_linear_narrow_int8, kNarrowTokens, kPanel, kNarrowTileThreads};
  return {int4 ? kKernel_linear_tile_int4 : kKernel_linear_tile_int8, kTileTokens, kPanel, kTileThreads};
}

// The shape of the tiles of some rows on a device.
TileShape shape_on(const ts_context& device, const ts_weight& w, int64_t rows, bool bank) {
  const bool stored = is_stored_kind(w.kind);
  const int64_t strip = stored ? kWideStrip : kPanel, tokens = stored ? kWideTokens : kTileTokens;
  const bool enough = divide_up(w.rows, strip) * divide_up(rows, tokens) >= (stored ? 1 : kTileBlocks) * device.multiprocessors;
  return shape_of(w.kind, rows, bank, enough);
}

// The places of rounded rows in scratch memory: whole tiles of rows, their pairs and their scales.
struct TileRoom {
  int64_t padded, groups, room, pairs, scales, bytes;

  TileRoom(const ts_weight& w, int64_t rows) {
    const bool stored = is_stored_kind(w.kind);
    padded = padded_columns(w.kind, w.columns);
    groups = divide_up(padded, w.group);
    room = divide_up(rows, kTileTokens) * kTileTokens;
    pairs = room * padded;
    scales = pairs + room * (stored ? padded / stored_shape(w.kind).sub : groups) * static_cast<int64_t>(sizeof(TilePair));
    bytes = round_up(scales + (stored ? room * divide_up(padded, activation_columns(w)) * 4 : 0));
  }
};

RoundArgs round_args(const ts_weight& w, uint64_t scratch, const TileRoom& room, const ProductRows& rows) {
  RoundArgs args = common_round_args(w, rows, scratch, room.room, room.scales);
  args.pairs = reinterpret_cast<TilePair*>(scratch + static_cast<uint64_t>(room.pairs));
  args.added = w.group <= kSmallGroup ? kSmallBits : 0;
  if (!is_stored_kind(w.kind)) return args;
  const StoredLayout layout = stored_layout(w.kind);
  args.sub = layout.sub;
  args.offset = layout.offset;
  args.fine = layout.fine;
  args.minimum = layout.minimum;
  return args;
}

}  // namespace

RoundArgs common_round_args(const ts_weight& w, const ProductRows& rows, uint64_t scratch, int64_t room, int64_t scales) {
  RoundArgs args = {};
  args.x = rows.x;
  args.q = reinterpret_cast<int8_t*>(scratch);
  args.scales = reinterpret_cast<float*>(scratch + static_cast<uint64_t>(scales));
  args.x_stride = rows.x_stride;
  args.rows = rows.count;
  args.room = room;
  args.columns = w.columns;
  args.padded = padded_columns(w.kind, w.columns);
  args.group = w.group;
  args.rotated = w.rotated;
  args.groups = divide_up(args.padded, w.group);
  return args;
}

TileArgs common_tile_args(const ts_weight& w, const ProductRows& rows, const RoundArgs& round) {
  TileArgs args = {};
  args.out = rows.out;
  args.data = static_cast<const uint8_t*>(w.data);
  args.scales = w.scales;
  args.bias = w.bias;
  args.q = round.q;
  args.pairs = round.pairs;
  args.x_scales = round.scales;
  args.out_stride = rows.out_stride;
  args.tokens = rows.count;
  args.room = round.room;
  args.rows = w.rows;
  args.panel_bytes = panel_bytes(w.kind, round.padded);
  args.group = w.group;
  args.groups = static_cast<int32_t>(round.groups);
  args.steps = static_cast<int32_t>(round.padded / kStep);
  args.panels = static_cast<int32_t>(divide_up(w.rows, kPanel));
  args.add = rows.add;
  args.gated = rows.gated;
  return args;
}

KernelNumber tiles_kernel(int32_t weight_kind, int64_t rows) { return shape_of(weight_kind, rows, false, true).kernel; }

bool tiles_gate(const ts_context& device, const ts_weight& w, int64_t rows) {
  return is_stored_kind(w.kind) && shape_on(device, w, rows, false).strip == kWideStrip && w.rows / 2 % kStepStrip == 0;
}

int64_t tiles_scratch(const ts_weight& w, int64_t rows) {
  const int64_t bytes = TileRoom(w, rows).bytes, of_prompt = prompt_scratch(w, rows);
  return bytes < of_prompt ? of_prompt : bytes;
}

int32_t start_tiles(ts_context& device, const ts_weight& w, uint64_t scratch, const ProductRows& rows, const TilePlaces* places) {
  // Kernels load 16 bytes of data and 8 of scales at once.
  if (reinterpret_cast<uint64_t>(w.data) % 16 != 0 || reinterpret_cast<uint64_t>(w.scales) % 8 != 0) return TS_BAD_POINTER;
  if (places == nullptr && fits_prompt(device, w, rows.count)) return start_prompt(device, w, scratch, rows);
  const TileRoom room(w, rows.count);
  RoundArgs round = round_args(w, scratch, room, rows);
  if (places != nullptr) {
    round.order = places->order;
    round.weights = places->weights;
    round.chosen = places->chosen;
  }
  const KernelNumber rounds = is_stored_kind(w.kind) ? kKernel_quantize_steps : kKernel_quantize_tiles;
  const int32_t status = start(device, rounds, divide_up(rows.count * room.groups, kTileRoundWarps), kTileRoundThreads, &round);
  if (status != TS_OK) return status;
  const int64_t together = kTileBlocks * device.multiprocessors;
  const TileShape shape = shape_on(device, w, rows.count, places != nullptr);
  TileArgs args = common_tile_args(w, rows, round);
  args.tiles = static_cast<int32_t>(divide_up(rows.count, shape.tokens));
  args.small = w.group <= kSmallGroup;
  args.stored = stored_layout(w.kind);
  if (places != nullptr) {
    args.matrices = places->tiles;
    args.order = places->order;
  }
  const int64_t tiles = divide_up(w.rows, shape.strip) * args.tiles;  // with as many rows of both halves of a gated product
  if (tiles > INT32_MAX) return TS_BAD_SHAPE;
  args.blocks = static_cast<int32_t>(is_stored_kind(w.kind) && shape.strip != kWideStrip && tiles > together ? together : tiles);
  args.wide = shape.tokens == kStepTokens;
  return start(device, shape.kernel, args.blocks, shape.threads, &args);
}

}  // namespace cuda
}  // namespace twostroke
