// How the CPU reads, writes and multiplies entries of pages.
#pragma once
#include "twostroke/attention/entry_page.h"
#include "twostroke/attention/kv_row.h"
#include "twostroke/simd.h"

namespace twostroke {

struct EntryPages : EntryLayout {
  using EntryLayout::EntryLayout;

  // Loads entry `index` of the sequence with this page table, as floats.
  void load(const int32_t* table, int64_t index, float* to) const {
    const int64_t position = index * rate + rate - 1, page = table[position / TS_PAGE_TOKENS], place = position % TS_PAGE_TOKENS / rate;
    const uint8_t* from = entry(page, place);
    if (layer->kind == TS_KV_F32) {
      memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
      return;
    }
    uint16_t bits;
    if (layer->kind == TS_KV_BF16) {
      for (int64_t d = 0; d < dim; ++d) {
        memcpy(&bits, from + 2 * d, 2);
        to[d] = widen(bits);
      }
      return;
    }
    memcpy(&bits, scale(page, place), 2);
    const float factor = widen(bits);
    if (layer->kind == TS_KV_INT8) {
      for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<float>(static_cast<int8_t>(from[d])) * factor;
    } else {
      for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<float>((from[d / 2] >> d % 2 * 4 & 15) - 8) * factor;
    }
  }

  void store_entry(const float* row, int64_t page, int64_t place) const {
    uint8_t* to = entry(page, place);
    if (layer->kind == TS_KV_F32) {
      memcpy(to, row, static_cast<size_t>(dim) * sizeof(float));
    } else if (layer->kind == TS_KV_BF16) {
      for (int64_t d = 0; d < dim; ++d) {
        uint16_t bits;
        convert(row[d], &bits);
        memcpy(to + 2 * d, &bits, 2);
      }
    } else if (layer->kind == TS_KV_INT8) {
      const Rounding rounded(row, dim, false, scale(page, place));
      for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<uint8_t>(static_cast<int8_t>(rounded(row[d])));
    } else {
      const Rounding rounded(row, dim, true, scale(page, place));
      for (int64_t d = 0; d < dim; d += 2) to[d / 2] = static_cast<uint8_t>((rounded(row[d]) + 8) | (rounded(row[d + 1]) + 8) << 4);
    }
  }
};

inline int64_t sequence_of_row(const ts_sequences& s, int64_t row) {
  int64_t found = 0;
  while (s.row_starts[found + 1] <= row) ++found;
  return found;
}

// Dot products of up to kRows rows with one entry. Each is sums in lanes over the numbers, and then one tree over the lanes.
template <int kRows>
inline void dots(const float* const (&rows)[kRows], const float* entry, int64_t dim, float* found) {
  Vec sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = zero();
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    const Vec key = twostroke::load(entry + d);
    for (int r = 0; r < kRows; ++r) sum[r] = fma(twostroke::load(rows[r] + d), key, sum[r]);
  }
  if (d < dim) {
    const Vec key = load_part(entry + d, dim - d, 0.0f);
    for (int r = 0; r < kRows; ++r) sum[r] = fma(load_part(rows[r] + d, dim - d, 0.0f), key, sum[r]);
  }
  for (int r = 0; r < kRows; ++r) found[r] = reduce_add(sum[r]);
}

}  // namespace twostroke
