// Kernels with faults that the emulator must find, and one without, each run with a seed.
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

struct BrokenArgs {
  int32_t* out;
};

constexpr int kThreads = 32;


TS_SHARED(int32_t, room, kThreads);

TS_KERNEL(sound, BrokenArgs) {
  room[thread_index()] = thread_index();
  barrier();
  args.out[block_index() * kThreads + thread_index()] = room[kThreads - 1 - thread_index()];
}

TS_KERNEL(no_barrier, BrokenArgs) {
  room[thread_index()] = thread_index();
  args.out[thread_index()] = room[kThreads - 1 - thread_index()];
}

// The second round writes where slower threads of the first round have yet to read.
TS_KERNEL(one_barrier_short, BrokenArgs) {
  for (int round = 0; round < 2; ++round) {
    room[thread_index()] = round;
    barrier();
    args.out[thread_index()] = room[kThreads - 1 - thread_index()];
  }
}

TS_KERNEL(same_element, BrokenArgs) {
  room[thread_index() / 2] = thread_index();
  barrier();
  args.out[thread_index()] = room[thread_index() / 2];
}

TS_KERNEL(never_written, BrokenArgs) {
  if (block_index() == 0) room[thread_index()] = 1;
  barrier();
  args.out[thread_index()] = room[thread_index()];
}

TS_KERNEL(beyond_the_end, BrokenArgs) { room[thread_index() + 1] = args.out[0]; }

TS_KERNEL(barrier_for_some, BrokenArgs) {
  if (thread_index() % 2 == 0) barrier();
  args.out[0] = 0;
}

// All blocks count in the same place.
TS_KERNEL(blocks_share, BrokenArgs) {
  if (thread_index() == 0) args.out[0] = args.out[0] + 1;
}

TS_KERNEL(threads_share, BrokenArgs) {
  int32_t* own = args.out + block_index() * kThreads;
  own[thread_index()] = thread_index();
  own[thread_index()] = own[kThreads - 1 - thread_index()];
}

// A block reads, after a barrier, what its neighbour writes. The barrier orders nothing between blocks.
TS_KERNEL(neighbour, BrokenArgs) {
  args.out[block_index() * kThreads + thread_index()] = 1;
  barrier();
  args.out[64 + block_index() * kThreads + thread_index()] = args.out[(1 - block_index()) * kThreads + thread_index()];
}

TS_KERNEL(barrier_between, BrokenArgs) {
  int32_t* own = args.out + block_index() * kThreads;
  own[thread_index()] = thread_index();
  barrier();
  const int32_t other = own[kThreads - 1 - thread_index()];
  barrier();
  own[thread_index()] = other;
}

// The warp alone computes the same result.
TS_KERNEL(warp_turned, BrokenArgs) {
  args.out[block_index() * kThreads + thread_index()] = static_cast<int32_t>(shuffle(static_cast<uint32_t>(thread_index()), kThreads - 1 - thread_index()));
}

TS_KERNEL(warp_for_some, BrokenArgs) {
  if (thread_index() % 2 == 0) args.out[0] = static_cast<int32_t>(shuffle(1, 0));
}

// Each thread of both blocks takes a place of its own.
TS_KERNEL(blocks_count, BrokenArgs) {
  const uint32_t place = atomic_add(reinterpret_cast<uint32_t*>(args.out) + 64, 1) + 1;  // the place was -1 before
  args.out[place] = kThreads - 1 - static_cast<int32_t>(place) % kThreads;
}

// Lane i gives i, which is 496 in all.
TS_KERNEL(warp_adds, BrokenArgs) {
  const int32_t total = static_cast<int32_t>(warp_total(static_cast<uint32_t>(thread_index())));
  args.out[block_index() * kThreads + thread_index()] = total - 496 + kThreads - 1 - thread_index();
}

TS_SHARED(uint32_t, counter, 1);

// Each thread of a block takes a place. `early`: whether it reads the number while others add.
TS_DEVICE_INLINE void count_threads(const BrokenArgs& args, bool early) {
  if (thread_index() == 0) counter[0] = 0;
  barrier();
  const uint32_t place = atomic_add(counter, 0, 1);
  if (!early) barrier();
  const uint32_t all = counter[0];
  args.out[block_index() * kThreads + place] = static_cast<int32_t>(all - 1 - place);
}

TS_KERNEL(threads_count, BrokenArgs) { count_threads(args, false); }
TS_KERNEL(read_while_adding, BrokenArgs) { count_threads(args, true); }

TS_SHARED(Words4, copied, kThreads);

// Each thread reads what it copied itself.
TS_DEVICE_INLINE void copy_own(const BrokenArgs& args, bool waits) {
  const int32_t thread = thread_index();
  copy_async(copied, thread, args.out + 128 + 4 * thread, true);
  commit_copies();
  if (waits) wait_copies<0>();
  const Words4 own = copied[thread];
  args.out[block_index() * kThreads + thread] = kThreads - 1 - thread + static_cast<int32_t>(own.x) + 1;  // the places were -1 before
}

TS_KERNEL(copy_waited, BrokenArgs) { copy_own(args, true); }
TS_KERNEL(copy_not_waited, BrokenArgs) { copy_own(args, false); }

// A[row][k] = row - 8 (signed) or row + 200 (unsigned) at k = 3, B[3][column] = column - 4 (signed) or column + 244 (unsigned), and zeros: three
// tables of 16 x 8.
TS_KERNEL(small_products, BrokenArgs) {
  const int32_t lane = warp_lane(), row = lane / 4, column = lane % 4 * 2;
  const bool third = lane % 4 == 0;
  const auto byte3 = [&](int32_t value) { return third ? static_cast<uint32_t>(value & 0xff) << 24 : 0; };
  const uint32_t b[2] = {byte3(row - 4), 0}, b_unsigned[2] = {byte3(row + 244), 0};
  const uint32_t a_signed[4] = {byte3(row - 8), byte3(row), 0, 0}, a_unsigned[4] = {byte3(row + 200), byte3(row + 208), 0, 0};
  int32_t sums[3][4] = {};
  mma_signed(sums[0], a_signed, b);
  mma_unsigned(sums[1], a_unsigned, b);
  mma_by_unsigned(sums[2], a_signed, b_unsigned);
  if (block_index() > 0) return;
  for (int32_t table = 0; table < 3; ++table)
    for (int32_t i = 0; i < 4; ++i) args.out[table * 128 + (row + i / 2 * 8) * 8 + column + i % 2] = sums[table][i];
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

extern "C" const char* run_broken(int32_t which, int32_t* out, uint64_t seed) {
  const Kernel kernels[] = {ts_kernel_sound,         ts_kernel_no_barrier,     ts_kernel_one_barrier_short, ts_kernel_same_element,
                            ts_kernel_never_written, ts_kernel_beyond_the_end, ts_kernel_barrier_for_some,
                            ts_kernel_blocks_share,  ts_kernel_threads_share,  ts_kernel_neighbour,         ts_kernel_barrier_between,
                            ts_kernel_warp_turned,   ts_kernel_warp_for_some,  ts_kernel_copy_waited,       ts_kernel_copy_not_waited,
                            ts_kernel_small_products, ts_kernel_blocks_count,
                            ts_kernel_threads_count, ts_kernel_read_while_adding, ts_kernel_warp_adds};
#if defined(TS_WATCHED)
  watch(out, 4096);  // a page
#endif
  const BrokenArgs args = {out};
  return run_grid(kernels[which], &args, 2, kThreads, seed);
}
