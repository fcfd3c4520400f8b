// low_rank: the products that adapters add to a product. A tile is up to kTileRows neighbouring rows with the same adapter. Every sum
// belongs to one row and has one order, whatever the tile. Sums over inputs go over 16 lanes and then over the lanes. Sums over ranks add
// one after the other.
#include <string.h>

#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"
#include "twostroke/products/register_tiles.h"
#include "twostroke/simd.h"
#include "twostroke/stream.h"
#include "twostroke/tasks.h"
#include "twostroke/products/unrolled.h"

namespace twostroke {
namespace {

constexpr int kRowsOfTile = kRegisterTiles.adapter_rows, kRanksOfRow = kRegisterTiles.adapter_ranks;
constexpr int64_t kPanelChunk = 8;  // panels of `up` in one task
constexpr int64_t kTilesOfThread = 4;  // with this many tiles for each thread, threads that take whole tiles end at nearly the same time
constexpr int kVectors = kPanel / kLanes;

struct LowRankTile {
  int32_t first, rows;
};

struct LowRankJob {
  const ts_low_rank_args* a;
  LowRankTile* tiles;
  int64_t count, blocks, chunks;
};

// The kinds of elements. Each loads columns 2i and 2i + 1 of a panel, 16 rows of them.
struct F32Factors {
  static constexpr int kBytes = 4;
  TS_VECTOR_INLINE void load_two(const uint8_t* panel, int64_t i, int vector, Vec* even, Vec* odd) {
    const float* at = reinterpret_cast<const float*>(panel) + 2 * i * kPanel + vector * kLanes;
    *even = load(at);
    *odd = load(at + kPanel);
  }
};

struct Bf16Factors {
  static constexpr int kBytes = 2;
  TS_VECTOR_INLINE void load_two(const uint8_t* panel, int64_t i, int vector, Vec* even, Vec* odd) {
    const Words words = load_words(panel + (i * kPanel + vector * kLanes) * 4);
    *even = low_halves(words);
    *odd = high_halves(words);
  }
};

struct Int8Factors {
  static constexpr int kBytes = 1;
  TS_VECTOR_INLINE void load_two(const uint8_t* panel, int64_t i, int vector, Vec* even, Vec* odd) {
    const int8_t* at = reinterpret_cast<const int8_t*>(panel) + 2 * i * kPanel + vector * kLanes;
    *even = load_int8(at);
    *odd = load_int8(at + kPanel);
  }
};

// Columns are whole steps of ranks, because no kind pads them.
const uint8_t* matrix_at(const ts_weight& bank, int32_t index) {
  const int64_t panels = (bank.rows + kPanel - 1) / kPanel;
  return static_cast<const uint8_t*>(bank.data) + index * panels * panel_bytes(bank.kind, bank.columns);
}

// The factor of a column of an adapter's matrix.
float scale_of(const ts_weight& bank, int32_t index, int64_t column) {
  return bank.scales == nullptr ? 1.0f : bf16_to_f32(bank.scales[index * bank.columns + column]);
}

template <int kLines>
TS_INLINE void fetch(const uint8_t* line) {
  TS_UNROLL for (int i = 0; i < kLines; ++i) Ahead{kFarOfOne, kNearOfOne}.prefetch(line + 64 * i);
}

// Computes middle[row, rank .. rank + kRanks) = down.T x, with the scales of both matrices.
template <typename Factors, int kRows, int kRanks>
TS_INLINE void down_ranks(const ts_low_rank_args& a, const uint8_t* down, int64_t row, int64_t rank) {
  const int64_t columns = a.down->rows, bytes = panel_bytes(a.down->kind, a.down->columns);
  const float* x = a.x.data + row * a.x.stride;
  Vec sums[kRows][kRanks];
  TS_UNROLL for (int r = 0; r < kRows; ++r) TS_UNROLL for (int k = 0; k < kRanks; ++k) sums[r][k] = zero();
  float rest[kRows][kPanel];
  for (int64_t at = 0; at < columns; at += kPanel, down += bytes) {
    const float* from[kRows];
    TS_UNROLL for (int r = 0; r < kRows; ++r) from[r] = x + r * a.x.stride + at;
    if (columns - at < kPanel) {
      memset(rest, 0, sizeof rest);
      for (int r = 0; r < kRows; ++r) {
        memcpy(rest[r], from[r], static_cast<size_t>(columns - at) * 4);
        from[r] = rest[r];
      }
    }
    if (kRows == 1) fetch<kRanks * Factors::kBytes>(down + rank * kPanel * Factors::kBytes);
    TS_UNROLL for (int v = 0; v < kVectors; ++v) {
      Vec own[kRows];
      TS_UNROLL for (int r = 0; r < kRows; ++r) own[r] = load(from[r] + v * kLanes);
      TS_UNROLL for (int k = 0; k < kRanks; k += 2) {
        Vec even, odd;
        Factors::load_two(down, (rank + k) / 2, v, &even, &odd);
        TS_UNROLL for (int r = 0; r < kRows; ++r) {
          sums[r][k] = fma(own[r], even, sums[r][k]);
          sums[r][k + 1] = fma(own[r], odd, sums[r][k + 1]);
        }
      }
    }
  }
  const int32_t adapter = a.adapters.data[row];
  for (int k = 0; k < kRanks; ++k) {
    const float scale = scale_of(*a.down, adapter, rank + k) * scale_of(*a.up, adapter, rank + k);
    for (int r = 0; r < kRows; ++r) a.middle.data[(row + r) * a.middle.stride + rank + k] = reduce_add(sums[r][k]) * scale;
  }
}

// Computes ranks [rank, last), which are whole steps.
template <typename Factors>
void down_block(const ts_low_rank_args& a, LowRankTile tile, int64_t rank, int64_t last) {
  const uint8_t* down = matrix_at(*a.down, a.adapters.data[tile.first]);
  int64_t row = tile.first;
  const int64_t end = row + tile.rows;
  for (; row + kRowsOfTile <= end; row += kRowsOfTile) {
    for (int64_t k = rank; k < last; k += 4) down_ranks<Factors, kRowsOfTile, 4>(a, down, row, k);
  }
  for (; row < end; ++row) {
    int64_t k = rank;
    for (; k + kRanksOfRow <= last; k += kRanksOfRow) down_ranks<Factors, 1, kRanksOfRow>(a, down, row, k);
    for (; k < last; k += kRankStep) down_ranks<Factors, 1, kRankStep>(a, down, row, k);
  }
}

// Adds up times middle to 64 columns of out[row].
template <typename Factors, int kRows>
TS_INLINE void up_panel(const ts_low_rank_args& a, const uint8_t* panel, int64_t row, int64_t first, int64_t width, int64_t ranks) {
  Vec sums[kRows][kVectors];
  TS_UNROLL for (int r = 0; r < kRows; ++r) TS_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
  const float* middle = a.middle.data + row * a.middle.stride;
  for (int64_t i = 0; i < ranks / 2; ++i) {
    if (kRows == 1) fetch<2 * Factors::kBytes>(panel + i * 2 * kPanel * Factors::kBytes);
    TS_UNROLL for (int v = 0; v < kVectors; ++v) {
      Vec even, odd;
      Factors::load_two(panel, i, v, &even, &odd);
      TS_UNROLL for (int r = 0; r < kRows; ++r) {
        const float* two = middle + r * a.middle.stride + 2 * i;
        sums[r][v] = fma(odd, set1(two[1]), fma(even, set1(two[0]), sums[r][v]));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = a.out.data + (row + r) * a.out.stride + first;
    TS_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t left = width - v * kLanes;
      float* to = out + v * kLanes;
      if (left >= kLanes) {
        store(to, load(to) + sums[r][v]);
      } else if (left > 0) {
        store_part(to, left, load_part(to, left, 0.0f) + sums[r][v]);
      }
    }
  }
}

template <typename Factors>
void up_chunk(const ts_low_rank_args& a, LowRankTile tile, int64_t chunk, int64_t ranks) {
  const uint8_t* up = matrix_at(*a.up, a.adapters.data[tile.first]);
  const int64_t bytes = panel_bytes(a.up->kind, a.up->columns), width = a.up->rows;
  for (int64_t panel = chunk * kPanelChunk; panel < (chunk + 1) * kPanelChunk && panel * kPanel < width; ++panel) {
    const int64_t first = a.first + panel * kPanel, own = width - panel * kPanel;
    int64_t row = tile.first;
    const int64_t end = row + tile.rows;
    for (; row + kRowsOfTile <= end; row += kRowsOfTile) up_panel<Factors, kRowsOfTile>(a, up + panel * bytes, row, first, own, ranks);
    for (; row < end; ++row) up_panel<Factors, 1>(a, up + panel * bytes, row, first, own, ranks);
  }
}

int64_t ranks_of(const ts_low_rank_args& a, int64_t row) {
  const int32_t adapter = a.adapters.data[row];
  return adapter < 0 ? 0 : round_up(static_cast<int64_t>(a.ranks.data[adapter]), kRankStep);
}

using Block = void (*)(const ts_low_rank_args&, LowRankTile, int64_t, int64_t);
using Chunk = void (*)(const ts_low_rank_args&, LowRankTile, int64_t, int64_t);

Block block_for(int32_t kind) { return kind == TS_W_F32 ? down_block<F32Factors> : kind == TS_W_BF16 ? down_block<Bf16Factors> : down_block<Int8Factors>; }
Chunk chunk_for(int32_t kind) { return kind == TS_W_F32 ? up_chunk<F32Factors> : kind == TS_W_BF16 ? up_chunk<Bf16Factors> : up_chunk<Int8Factors>; }

void down_task(void* arg, int64_t index, int32_t) {
  const LowRankJob& job = *static_cast<const LowRankJob*>(arg);
  const LowRankTile tile = job.tiles[index / job.blocks];
  const int64_t rank = index % job.blocks * kRankStep;
  if (rank < ranks_of(*job.a, tile.first)) block_for(job.a->down->kind)(*job.a, tile, rank, rank + kRankStep);
}

void up_task(void* arg, int64_t index, int32_t) {
  const LowRankJob& job = *static_cast<const LowRankJob*>(arg);
  const LowRankTile tile = job.tiles[index / job.chunks];
  const int64_t ranks = ranks_of(*job.a, tile.first), chunk = index % job.chunks;
  chunk_for(job.a->up->kind)(*job.a, tile, chunk, ranks);
}

// Computes both halves of a tile, one after the other.
void tile_task(void* arg, int64_t index, int32_t thread) {
  const LowRankJob& job = *static_cast<const LowRankJob*>(arg);
  const LowRankTile tile = job.tiles[index];
  block_for(job.a->down->kind)(*job.a, tile, 0, ranks_of(*job.a, tile.first));
  for (int64_t chunk = 0; chunk < job.chunks; ++chunk) up_task(arg, index * job.chunks + chunk, thread);
}

int32_t check(const ts_low_rank_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  for (int64_t adapter = 0; adapter < a.ranks.length; ++adapter) {
    if (!(a.ranks.data[adapter] >= 0 && a.ranks.data[adapter] <= static_cast<float>(a.down->columns))) return TS_BAD_INDEX;
  }
  return TS_OK;
}

// Finds neighbouring rows with the same adapter, and cuts them into pieces that keep all threads busy. Rows without an adapter are in no
// tile.
int64_t find_tiles(const ts_low_rank_args& a, LowRankTile* tiles) {
  int64_t count = 0;
  for (int64_t first = 0, end = 0; first < a.out.rows; first = end) {
    const int32_t adapter = a.adapters.data[first];
    while (end < a.out.rows && a.adapters.data[end] == adapter && end - first < 4 * kRowsOfTile) ++end;
    if (ranks_of(a, first) > 0) tiles[count++] = {static_cast<int32_t>(first), static_cast<int32_t>(end - first)};
  }
  return count;
}

void copy_task(const ts_low_rank_args& a, int64_t row) {
  memcpy(a.out.data + row * a.out.stride, a.product.data + row * a.product.stride, static_cast<size_t>(width_of(a.out)) * 4);
}

}  // namespace

int32_t run(ts_context* context, const ts_low_rank_args& a) {
  const int32_t status = check(a);
  if (status != TS_OK) return status;
  if (a.out.data != a.product.data) share_tasks<copy_task>(context, a.out.rows, a);
  LowRankTile* tiles = static_cast<LowRankTile*>(ts_scratch(context, static_cast<size_t>(a.out.rows) * sizeof(LowRankTile)));
  if (tiles == nullptr) return TS_NO_MEMORY;
  const int64_t panels = (a.up->rows + kPanel - 1) / kPanel;
  LowRankJob job = {&a, tiles, find_tiles(a, tiles), a.down->columns / kRankStep, (panels + kPanelChunk - 1) / kPanelChunk};
  if (job.count == 0) return TS_OK;
  const int64_t threads = ts_threads(context);
  if (job.count % threads == 0 || job.count >= kTilesOfThread * threads) {  // no thread waits for another thread's half
    ts_parallel(context, job.count, tile_task, &job);
    return TS_OK;
  }
  ts_parallel(context, job.count * job.blocks, down_task, &job);
  ts_parallel(context, job.count * job.chunks, up_task, &job);
  return TS_OK;
}

}  // namespace twostroke
