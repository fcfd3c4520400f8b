// entry_write: writes entries that close in this step into their pages.
#include "twostroke/attention/entries.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void write_row(const ts_entry_write_args& a, int64_t t) {
  if ((a.positions.data[t] + int64_t{1}) % a.rate != 0) return;
  const EntryPages pages(a.layer, width_of(a.rows), a.rate);
  const int32_t slot = a.slots.data[t];
  pages.store_entry(a.rows.data + t * a.rows.stride, slot / TS_PAGE_TOKENS, slot % TS_PAGE_TOKENS / a.rate);
}

}  // namespace

int32_t run(ts_context* context, const ts_entry_write_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<write_row>(context, a.rows.rows, a);
  return TS_OK;
}

}  // namespace twostroke
