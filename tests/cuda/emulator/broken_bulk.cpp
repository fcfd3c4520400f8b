// Kernels with signals, bulk copies and products of warpgroups: two without faults, and others with faults that the emulator must find. A
// block has two warpgroups.
#include "twostroke/cuda/machine/bulk.h"

namespace twostroke {
namespace cuda {

struct BulkArgs {
  const int8_t* from;  // two tables (64, 128), at the places of product_place
  int32_t* out;
  int32_t fault;
};

enum Fault { kSound, kNotWaited, kNotRead, kTooFew, kRegisters, kNeverWaited, kNotCopied, kOtherSignal, kOverwritten };

constexpr int32_t kBulkThreads = 2 * kGroupSize;

TS_SHARED_KILOBYTES(Words4, bulk_room, kProductWords);
TS_SHARED(Words4, more_room, kGroupWarps);
TS_SIGNALS(bulk_full, 2);
TS_SIGNALS(bulk_empty, 1);

// Both warpgroups multiply A, whose rows are all 1, by one table after the other, in the same place. The sums of each column go to out.
TS_KERNEL(bulk_tables, BulkArgs) {
  const int32_t thread = thread_index(), fault = args.fault;
  if (thread == 0) {
    begin_signal(bulk_full, 0, 1);
    begin_signal(bulk_full, 1, 1);
    begin_signal(bulk_empty, 0, 2 * kGroupWarps);
    end_signals();
  }
  barrier();
  uint32_t a[16];
  for (int i = 0; i < 16; ++i) a[i] = 0x01010101u;
  for (int32_t table = 0; table < 2; ++table) {
    if (thread == 0 && fault != kNotCopied) {
      if (table == 1 && fault != kNotRead) wait_signal(bulk_empty, 0, 0);
      arrive_expecting(bulk_full, 0, kProductWords * 16 + (fault == kTooFew ? 16 : 0));
      copy_bulk(bulk_room, 0, args.from + table * kProductWords * 16, kProductWords * 16, bulk_full, 0);
      if (fault == kOtherSignal && table == 0) {
        arrive_expecting(bulk_full, 1, 64);
        copy_bulk(more_room, 0, args.from, 64, bulk_full, 1);
      }
    }
    if (fault == kNeverWaited) return;
    if (fault == kOtherSignal && table == 0) wait_signal(bulk_full, 1, 0);
    else if (fault != kNotWaited && fault != kNotCopied) wait_signal(bulk_full, 0, static_cast<uint32_t>(table));
    int32_t sums[32];
    begin_product<false>(sums, a, bulk_room, 0);
    if (fault == kRegisters) sums[thread % 32] = 0;
    end_product(sums);
    keep_operands(a);
    if (fault == kOverwritten && thread == 200) bulk_room[5] = Words4{0, 0, 0, 0};
    if (warp_lane() == 0) arrive(bulk_empty, 0);
    if (thread >= 4) continue;
    for (int i = 0; i < 32; i += i % 2 == 0 ? 1 : 3) args.out[(block_index() * 2 + table) * 64 + i / 4 * 8 + 2 * thread + i % 2] = sums[i];
  }
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

extern "C" const char* run_bulk(int32_t fault, const int8_t* from, int32_t* out, uint64_t seed) {
  const BulkArgs args = {from, out, fault};
  return run_grid(ts_kernel_bulk_tables, &args, 2, kBulkThreads, seed);
}
