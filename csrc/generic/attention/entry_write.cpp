// entry_write: entries that close in this step into their pages.
// Knows: the pages of entries. Must not know: attention, what an entry is made of.
#include "twostroke/attention/entries.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

void write_row(void* opaque, int64_t t, int32_t) {
  const ts_entry_write_args& a = *static_cast<const ts_entry_write_args*>(opaque);
  if ((a.positions.data[t] + int64_t{1}) % a.rate != 0) return;
  const EntryPages pages(a.layer, width_of(a.rows), a.rate);
  const int32_t slot = a.slots.data[t];
  pages.store_entry(a.rows.data + t * a.rows.stride, slot / TS_PAGE_TOKENS, slot % TS_PAGE_TOKENS / a.rate);
}

}  // namespace

int32_t run(ts_context* context, const ts_entry_write_args& a) {
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = EntryPages(a.layer, width_of(a.rows), a.rate).check();
  if (status != TS_OK) return status;
  if (a.slots.count != a.rows.rows || a.positions.count != a.rows.rows) return TS_BAD_SHAPE;
  for (int64_t t = 0; t < a.slots.count; ++t)
    if (a.slots.data[t] < 0 || a.slots.data[t] / TS_PAGE_TOKENS >= a.layer->num_pages) return TS_BAD_INDEX;
  ts_parallel(context, a.rows.rows, write_row, const_cast<ts_entry_write_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
