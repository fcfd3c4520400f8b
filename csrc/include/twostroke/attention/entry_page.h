// Where entries lie in a page. An entry is a vector that stands for several positions. src/twostroke/ops/attention/entries.py defines the
// layout.
#pragma once
#include "twostroke/attention/kv_page.h"
#include "twostroke/ops.h"

namespace twostroke {

constexpr int64_t kMostEntry = 2048;  // the most numbers of an entry
constexpr int64_t kBesideEntry = 2;  // the numbers next to the sum in a result of entry_attention that another call continues

struct EntryLayout {
  const ts_kv_layer* layer;
  KVLayout layout;
  int64_t dim, rate;

  EntryLayout(const ts_kv_layer* of, int64_t numbers, int64_t positions) : layer(of), layout(of), dim(numbers), rate(positions) {}

  int64_t bytes() const {
    const int32_t kind = layer->kind;
    return kind == TS_KV_F32 ? 4 * dim : kind == TS_KV_BF16 ? 2 * dim : kind == TS_KV_INT8 ? dim : dim / 2;
  }
  uint8_t* entry(int64_t page, int64_t place) const { return layout.keys(page, 0) + place * bytes(); }
  uint8_t* scale(int64_t page, int64_t place) const { return layout.key_scales(layout.keys(page, 0)) + 2 * place; }

  // Returns TS_OK where a page has room for its entries.
  int32_t check() const {
    const int64_t places = (TS_PAGE_TOKENS + rate - 1) / rate;
    if (layer->latent == 0 || dim < 2 || dim % 2 != 0 || dim > kMostEntry || rate < 1) return TS_BAD_SHAPE;
    return places * bytes() > layout.key_bytes ? TS_BAD_SHAPE : TS_OK;
  }
};

// Checks the pages of all positions from that of the first visible entry on. `window` counts entries; 0 means all.
inline int32_t check_entry_pages(const ts_kv_layer* layer, const ts_sequences& s, int64_t rows, int64_t rate, int64_t window) {
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && (s.row_starts[0] != 0 || s.row_starts[s.count] != rows)) return TS_BAD_INDEX;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t own = s.row_starts[i + 1] - s.row_starts[i], context = s.context_tokens[i];
    if (own < 0 || own > context || context >= 1 << 24) return TS_BAD_SHAPE;
    const int64_t seen = (context - own + 1) / rate, first = window > 0 && seen > window ? seen - window : 0, end = context / rate;
    if (end > first && (end * rate - 1) / TS_PAGE_TOKENS >= s.max_pages) return TS_BAD_SHAPE;
    for (int64_t entry = first; entry < end;) {
      const int64_t place = (entry * rate + rate - 1) / TS_PAGE_TOKENS;
      const int32_t page = s.page_table[i * s.max_pages + place];
      if (page < 0 || page >= layer->num_pages) return TS_BAD_INDEX;
      entry = (place + 1) * TS_PAGE_TOKENS / rate;  // the first entry that closes after this page
    }
  }
  return TS_OK;
}

// Returns TS_OK, or the status of what is wrong with the operands of an op over entries. Each backend checks their addresses itself.
inline int32_t check_shapes(const ts_entry_write_args& a) {
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = EntryLayout(a.layer, width_of(a.rows), a.rate).check();
  if (status != TS_OK) return status;
  if (a.slots.count != a.rows.rows || a.positions.count != a.rows.rows) return TS_BAD_SHAPE;
  for (int64_t t = 0; t < a.slots.count; ++t)
    if (a.slots.data[t] < 0 || a.slots.data[t] / TS_PAGE_TOKENS >= a.layer->num_pages) return TS_BAD_INDEX;
  return TS_OK;
}

inline int32_t check_shapes(const ts_entry_select_args& a) {
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = EntryLayout(a.layer, a.q.dim, a.rate).check();
  if (status != TS_OK) return status;
  if (a.q.rows != a.out.rows || a.weights.rows != a.out.rows || width_of(a.weights) != a.q.heads) return TS_BAD_SHAPE;
  return check_entry_pages(a.layer, a.batch, a.q.rows, a.rate, 0);
}

inline int32_t check_shapes(const ts_entry_attention_args& a) {
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = EntryLayout(a.layer, a.q.dim, a.rate).check();
  if (status != TS_OK) return status;
  const int64_t wide = a.q.dim + kBesideEntry;
  if (a.out.rows != a.q.rows || a.out.heads != a.q.heads || (a.out.dim != a.q.dim && a.out.dim != wide)) return TS_BAD_SHAPE;
  if (a.before.data != nullptr && (a.before.rows != a.q.rows || a.before.heads != a.q.heads || a.before.dim != wide)) return TS_BAD_SHAPE;
  if (a.chosen.data != nullptr && a.chosen.rows != a.q.rows) return TS_BAD_SHAPE;
  if ((a.sinks.data != nullptr && a.sinks.length != a.q.heads) || a.window < 0) return TS_BAD_SHAPE;
  return check_entry_pages(a.layer, a.batch, a.q.rows, a.rate, a.window);
}

}  // namespace twostroke
