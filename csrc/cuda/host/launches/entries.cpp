// The launchers of ops over pages of entries. Slots and page tables are checked on the host, where the step was written.
#include "twostroke/attention/entry_page.h"
#include "twostroke/cuda/host/launch.h"

namespace twostroke {
namespace cuda {

static_assert(kEntryTile == kGroupThreads, "entry_scores has the tiles of select_largest");

int32_t launch(ts_context& device, const ts_entry_write_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  EntryWriteArgs args = {a, *a.layer};
  if (!mirror(device, args.slots) || !mirror(device, args.positions)) return TS_BAD_POINTER;
  return start(device, kKernel_entry_write, a.rows.rows, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_entry_select_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  return start_selection(device, a, a.rate, kKernel_entry_scores, kThreads);
}

int32_t launch(ts_context& device, const ts_entry_attention_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  EntryArgs args = {a, *a.layer};
  return mirror(device, args.batch) ? start(device, kKernel_entry_attention, a.q.rows * a.q.heads, kThreads, &args) : TS_BAD_POINTER;
}

}  // namespace cuda
}  // namespace twostroke
