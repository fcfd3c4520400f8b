// How a product with a given number of rows is computed: the ways, and the one table that chooses and names them. The numbers of a level
// (level.h) decide which ways it has; an inline function that nothing names is not compiled.
//
// With few rows, the weights are read once, and threads wait for memory. So the order of reading matters more than the arithmetic. On
// Intel's CPUs a thread reads several panels at once, a little of each in turn. Measured on 2 cores of a Xeon, four panels in steps of 1
// KiB are read 12% faster than one after the other, and two panels 8% faster. The reason is that each page that is being read has hardware
// of its own that fetches ahead.
//
// AMD's CPUs (Zen 4) are quicker when they read one stretch of memory after the other; they lose time at each end of a stretch and at each
// pause. There a kernel takes a whole panel. A panel in groups of columns, with other reads between them, is 4% slower where memory
// delivers 31 GB/s, and 5 to 10% slower where it delivers 52 GB/s. For a gated product a task takes several gate panels, which lie next to
// each other, and then the up panels, instead of alternating. This is 7% quicker with one row of int4.
#include "twostroke/kernel_case.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/products/stored.h"

namespace twostroke {

inline void read_streams(const Job& job, int64_t first_panel, float* sums) {
  const int64_t count = job.panels_each * job.parts;
  memset(sums, 0, static_cast<size_t>(count * job.tokens * kPanel) * 4);
  Panel panels[kMostStreams], next[kMostStreams];
  for (int64_t s = 0; s < count; ++s) {
    const int64_t panel = first_panel + s / job.parts, part = s % job.parts;
    panels[s] = panel_of(job, part_panel(job, panel, part));
    next[s] = panel_of(job, part_panel(job, panel + job.panels_each, part));
  }
  for (int64_t g = 0; g < job.groups; ++g) {
    Group groups[kMostStreams];
    for (int64_t s = 0; s < count; ++s) groups[s] = group_of(job, panels[s], g, next[s].data);
    stream_kernel(job.w.kind, job.tokens)(groups, tile_rows(job, 0), sums, job.tokens * kPanel);
  }
}

inline void read_panels(const Job& job, TileKernel kernel, int64_t first_panel, int64_t count, float* sums) {
  const TileRows rows = tile_rows(job, 0);
  for (int64_t part = 0; part < job.parts; ++part) {
    for (int64_t i = 0; i < count; ++i) {
      if (part >= last_part(job, first_panel + i)) continue;
      kernel(panel_of(job, part_panel(job, first_panel + i, part)), rows, sums_of(job, i, part, sums));
    }
  }
}

inline void read_on(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  read_panels(job, few_rows_kernel(job.w.kind, job.tokens, job.in_turn), first_panel, count, sums);
}

inline void read_in_turn(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  if (count * job.parts != streams(job.w.kind)) return read_on(job, first_panel, count, sums);
  read_streams(job, first_panel, sums);
}

inline void read_several_on(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  read_panels(job, several_rows_kernel(job.w.kind, job.tokens), first_panel, count, sums);
}

inline void stored_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  if constexpr (kLevel.stored_as_they_lie()) {
    multiply_stored_rows(kind, group, sets);
  } else {
    const StoredGroup weights = unpack_stored(kind, group.data, group.columns, block);
    for (const RowSet& set : sets) {
      each_tile(0, set.rows, kTileRows, [&](int64_t row, int64_t rows) {
        multiply_stored(weights, group, rows_after(set.x, row), rows, set.sums + row * kPanel);
      });
    }
  }
}

inline void blocks_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  block_group(kind, group, sets, block);
}

// Runs the kernels of one group over all tiles of rows. kernel: returns the kernel for a number of rows. data: the group's bytes, as they
// are stored or unpacked. The tiles of the first set fetch what is read next.
inline void tiles_by_group(int32_t kind, const Group& group, const RowSets& sets, GroupKernel (*kernel)(int64_t), const uint8_t* data,
                           int64_t most = kTileRows) {
  int64_t lines = panel_bytes(kind, group.columns) / 64;
  for (const RowSet& set : sets) {
    FetchByTiles ahead = {group.after, lines, (set.rows + most - 1) / most};
    each_tile(0, set.rows, most, [&](int64_t row, int64_t rows) {
      const TileRows x = rows_after(set.x, row);
      float* const at = set.sums + row * kPanel;
      const int64_t left = set.rows - row - rows;
      if (left > 0) fetch_rows(rows_after(x, rows), group, left < most ? left : most, at + rows * kPanel);
      kernel(rows)(data, group, x, ahead, at);
    });
    lines = 0;
  }
}

inline void int8_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t*) {
  tiles_by_group(kind, group, sets, [](int64_t rows) { return int8_kernel(rows); }, group.data);
}

inline void int4_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t*) {
  tiles_by_group(kind, group, sets, [](int64_t rows) { return int4_kernel(rows); }, group.data);
}

inline void unpacked_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  unpack_int4(group.data, group.columns, block);
  tiles_by_group(kind, group, sets, [](int64_t rows) { return int8_kernel(rows); }, block);
}

constexpr int64_t kCodesRows = 3;  // the rows of a tile: see linear_int4_avx2.cpp

inline void codes_by_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  unpack_int4_codes(group.data, group.columns, block);
  tiles_by_group(kind, group, sets, [](int64_t rows) { return int4_codes_kernel(rows); }, block, kCodesRows);
}

// The names are those of the functions that multiply; tests look for them in the sources.
namespace ways {

inline constexpr Way kFloats = {"float_kernel", nullptr, nullptr};
inline constexpr Way kStored = {kLevel.stored_as_they_lie() ? "multiply_stored_rows" : "unpack_stored, then multiply_stored", nullptr,
                                stored_by_group};
inline constexpr Way kStoredFew = {"stored_few_rows", read_on, nullptr};
inline constexpr Way kInTurn = {"stream_kernel; few_rows_kernel for the last panels", read_in_turn, nullptr};
inline constexpr Way kFewRows = {"few_rows_kernel", read_on, nullptr};
inline constexpr Way kSeveralRows = {"several_rows_kernel", read_several_on, nullptr};
inline constexpr Way kBlocks = {"block_group", nullptr, blocks_by_group};
inline constexpr Way kInt8 = {"int8_kernel", nullptr, int8_by_group};
inline constexpr Way kInt4 = {"int4_kernel", nullptr, int4_by_group};
inline constexpr Way kInt4Codes = {"unpack_int4_codes, then int4_codes_kernel", nullptr, codes_by_group};
inline constexpr Way kUnpackedInt4 = {"unpack_int4, then int8_kernel", nullptr, unpacked_by_group};

}  // namespace ways

const Way& way_of(int32_t kind, int64_t rows, [[maybe_unused]] bool in_turn) {
  if (!is_integer_kind(kind)) return ways::kFloats;
  if constexpr (kLevel.stored_as_they_lie()) {
    if (is_stored_kind(kind) && rows <= kStoredFewRows) return ways::kStoredFew;
  }
  if (is_stored_kind(kind)) return ways::kStored;
  if constexpr (kLevel.has_blocks()) {
    if (rows <= kStreamRows) return in_turn ? ways::kInTurn : ways::kFewRows;
    if constexpr (kLevel.reads_several_on()) {
      if (!in_turn && rows <= read_on_rows(kind)) return ways::kSeveralRows;
    }
    return ways::kBlocks;
  } else {
    if (kind == TS_W_INT8) return ways::kInt8;
    if constexpr (kInt4Rows > 0) {
      if (rows <= kInt4Rows) return ways::kInt4;
    }
    if constexpr (kLevel.int4_codes) return ways::kInt4Codes;
    else return ways::kUnpackedInt4;
  }
}

const char* product_kernel(const KernelCase& asked) { return way_of(asked.weight_kind, asked.rows, asked.in_turn).name; }

}  // namespace twostroke
