// The launchers of ops over pages of entries. Slots and page tables are checked on the host, where the step was written.
#include "twostroke/attention/entry_page.h"
#include "twostroke/cuda/host/launch.h"

namespace twostroke {
namespace cuda {

static_assert(kEntryTile == kGroupThreads, "entry_scores has the tiles of select_largest");

int32_t launch(ts_context& device, const ts_entry_write_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int32_t *slots = mirrored(device, a.slots.data, a.slots.count), *positions = mirrored(device, a.positions.data, a.positions.count);
  if (slots == nullptr || positions == nullptr) return TS_BAD_POINTER;
  const EntryWriteArgs args = {*a.layer, a.rows.data, slots, positions, a.rows.stride, width_of(a.rows), a.rate};
  return start(device, kKernel_entry_write, a.rows.rows, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_entry_select_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  return start_selection(device, a, a.rate, kKernel_entry_scores, kThreads);
}

int32_t launch(ts_context& device, const ts_entry_attention_args& a) {
  int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  EntryArgs args = {};
  args.layer = *a.layer;
  args.out = a.out.data;
  args.q = a.q.data;
  args.chosen = a.chosen.data;
  args.before = a.before.data;
  args.sinks = a.sinks.data;
  args.out_stride = a.out.stride;
  args.q_stride = a.q.stride;
  args.chosen_stride = a.chosen.stride;
  args.before_stride = a.before.stride;
  args.heads = a.q.heads;
  args.dim = a.q.dim;
  args.out_dim = a.out.dim;
  args.choices = width_of(a.chosen);
  args.rate = a.rate;
  args.window = a.window;
  args.scale = static_cast<float>(a.scale);
  status = mirror_sequences(device, a.batch, &args);
  return status == TS_OK ? start(device, kKernel_entry_attention, a.q.rows * a.q.heads, kThreads, &args) : status;
}

}  // namespace cuda
}  // namespace twostroke
