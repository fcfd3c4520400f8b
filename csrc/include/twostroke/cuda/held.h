// Columns of a state whose numbers stay in registers from the first token to the last: kHeld of a thread, and two neighbours share a longer
// column. A sum over a column has one order, so the second thread goes on with what the first one has.
// Knows: simt.h. Must not know: what a state means.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kHeld = kHeldNumbers;
constexpr int32_t kHeldStep = kHeld + 4;  // between both halves of what a block shares: their numbers lie in other banks

// Whether a block of so many threads holds columns of `numbers` numbers, `width` of them.
constexpr bool is_held(int64_t numbers, int64_t width, int64_t threads) {
  return (numbers == kHeld || numbers == 2 * kHeld) && width * numbers / kHeld <= threads;
}

// Where number n of a column lies in what the block shares.
TS_DEVICE_INLINE int32_t held_place(int32_t n) { return n + n / kHeld * (kHeldStep - kHeld); }

// This thread's part: column, and which half.
struct HeldPart {
  int32_t parts, column, part;  // parts: 1 or 2 of a column
  bool own;                     // whether there is such a column

  TS_MEMBER_INLINE HeldPart(int64_t numbers, int64_t width)
      : parts(static_cast<int32_t>(numbers) / kHeld), column(thread_index() / parts), part(thread_index() % parts), own(column < width) {}

  // state: (numbers, width) of the block.
  TS_MEMBER_INLINE void read(float (&h)[kHeld], const float* state, int64_t width) const {
    TS_EVERY_LANE
    for (int32_t n = 0; n < kHeld; ++n) h[n] = own ? state[(part * kHeld + n) * width + column] : 0.0f;
  }
  TS_MEMBER_INLINE void write(const float (&h)[kHeld], float* state, int64_t width) const {
    TS_EVERY_LANE
    for (int32_t n = 0; n < kHeld; ++n)
      if (own) state[(part * kHeld + n) * width + column] = h[n];
  }
  // The sum over the column of h times what `shared` has for each number. By all threads of the block.
  template <class Shared>
  TS_MEMBER_INLINE float sum(const float (&h)[kHeld], Shared& shared) const {
    float sum = 0.0f;
    for (int32_t turn = 0; turn < parts; ++turn) {
      if (turn > 0) sum = shuffle_across(sum, 1);
      TS_EVERY_LANE
      for (int32_t n = 0; n < kHeld; ++n) sum = fma(shared[part * kHeldStep + n], h[n], sum);
    }
    return parts == 1 ? sum : float_of(shuffle(bits_of(sum), warp_lane() | 1));
  }
};

}  // namespace cuda
}  // namespace twostroke
