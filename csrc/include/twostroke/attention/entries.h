// Pages of entries: vectors of which each stands for several positions. The law is src/twostroke/ops/attention/entries.py.
// Knows: the layout, rounding. Must not know: which entries a row sees.
#pragma once
#include "twostroke/attention/kv_row.h"
#include "twostroke/ops.h"
#include "twostroke/simd.h"

namespace twostroke {

constexpr int64_t kMostEntry = 2048;  // numbers of an entry

struct EntryPages {
  const ts_kv_layer* layer;
  KVLayout layout;
  int64_t dim, rate;

  EntryPages(const ts_kv_layer* of, int64_t numbers, int64_t positions) : layer(of), layout(of), dim(numbers), rate(positions) {}

  int64_t bytes() const {
    const int32_t kind = layer->kind;
    return kind == TS_KV_F32 ? 4 * dim : kind == TS_KV_BF16 ? 2 * dim : kind == TS_KV_INT8 ? dim : dim / 2;
  }
  uint8_t* entry(int64_t page, int64_t place) const { return layout.keys(page, 0) + place * bytes(); }
  uint8_t* scale(int64_t page, int64_t place) const { return layout.key_scales(layout.keys(page, 0)) + 2 * place; }

  // TS_OK where a page has room for its entries.
  int32_t check() const {
    const int64_t places = (TS_PAGE_TOKENS + rate - 1) / rate;
    if (layer->latent == 0 || dim < 2 || dim % 2 != 0 || dim > kMostEntry || rate < 1) return TS_BAD_SHAPE;
    return places * bytes() > layout.key_bytes ? TS_BAD_SHAPE : TS_OK;
  }

  // Entry `index` of the sequence with this page table, as floats.
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

// Pages of all positions from that of the first visible entry on; `window` of entries, 0 for all.
inline int32_t check_entry_pages(const ts_kv_layer* layer, const ts_sequences& s, int64_t rows, int64_t rate, int64_t window) {
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && (s.row_starts[0] != 0 || s.row_starts[s.count] != rows)) return TS_BAD_INDEX;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t own = s.row_starts[i + 1] - s.row_starts[i], context = s.context_tokens[i];
    if (own < 0 || own > context || context >= 1 << 24) return TS_BAD_SHAPE;
    const int64_t seen = (context - own + 1) / rate, first = window > 0 && seen > window ? seen - window : 0, end = context / rate;
    if (end > first && (end * rate - 1) / TS_PAGE_TOKENS >= s.max_pages) return TS_BAD_SHAPE;
    for (int64_t entry = first; entry < end; ++entry) {
      const int32_t page = s.page_table[i * s.max_pages + (entry * rate + rate - 1) / TS_PAGE_TOKENS];
      if (page < 0 || page >= layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

inline int64_t sequence_of_row(const ts_sequences& s, int64_t row) {
  int64_t found = 0;
  while (s.row_starts[found + 1] <= row) ++found;
  return found;
}

// Dot products of up to kRows rows with one entry, each a chain of lanes over the numbers and one tree over the lanes.
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
