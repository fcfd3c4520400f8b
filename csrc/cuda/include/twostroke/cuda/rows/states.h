// The rows of one sequence and its state, for kernels that go through a sequence token by token.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/states/states.h"

namespace twostroke {
namespace cuda {

// Returns the rows and the state of a sequence of an op.
template <class Args>
TS_DEVICE_INLINE Span span_of(const Args& args, int64_t sequence) {
  const int64_t first = args.batch.row_starts[sequence];
  return {first, args.batch.row_starts[sequence + 1] - first, args.state.data + args.slots.data[sequence] * args.state.stride};
}

constexpr int kNumbersAtOnce = 8;  // numbers of a state's column whose loads are sent together
constexpr int kKeptNumbers = 4096;  // numbers of a state that all threads of a block keep together

TS_SHARED(float, kept_numbers, kKeptNumbers);

// Calls visit(i, number i) for `count` numbers in order. read(i) loads a number; write(i, number) stores it where it is kept.
template <class Read, class Visit, class Write>
TS_DEVICE_INLINE void go_through_column(int64_t count, Read read, Visit visit, Write write) {
  int64_t first = 0;
  TS_ONE_BY_ONE
  for (; first + kNumbersAtOnce <= count; first += kNumbersAtOnce) {
    float numbers[kNumbersAtOnce];
    TS_EVERY_LANE
    for (int i = 0; i < kNumbersAtOnce; ++i) numbers[i] = read(first + i);
    TS_EVERY_LANE
    for (int i = 0; i < kNumbersAtOnce; ++i) visit(first + i, numbers[i]);
    TS_EVERY_LANE
    for (int i = 0; i < kNumbersAtOnce; ++i) write(first + i, numbers[i]);
  }
  TS_ONE_BY_ONE
  for (; first < count; ++first) {
    float number = read(first);
    visit(first, number);
    write(first, number);
  }
}

// A column of a state (count, step), whose numbers a thread goes through in order. It stays in shared memory from the first token to the
// last; count times the threads of the block is at most kKeptNumbers. A thread after the last column has a count of 0 and reads no state.
struct KeptColumn {
  static constexpr bool kIsShort = true;
  float* state;
  int64_t count, step;

  TS_MEMBER_INLINE KeptColumn(float* from, int64_t length, int64_t apart) : state(from), count(length), step(apart) {
    go_through_column(
        count, [&](int64_t i) { return state[i * step]; }, [](int64_t, float) {}, [&](int64_t i, float number) { kept_numbers[at(i)] = number; });
  }
  TS_MEMBER_INLINE int64_t at(int64_t i) const { return i * threads() + thread_index(); }
  TS_MEMBER_INLINE float read(int64_t i) const { return kept_numbers[at(i)]; }

  template <class Visit>
  TS_MEMBER_INLINE void look(Visit visit) const {
    go_through_column(count, [&](int64_t i) { return read(i); }, visit, [](int64_t, float) {});
  }
  template <class Visit>
  TS_MEMBER_INLINE void change(Visit visit) {
    go_through_column(count, [&](int64_t i) { return read(i); }, visit, [&](int64_t i, float number) { kept_numbers[at(i)] = number; });
  }
  TS_MEMBER_INLINE void end() const {
    go_through_column(
        count, [&](int64_t i) { return read(i); }, [](int64_t, float) {}, [&](int64_t i, float number) { state[i * step] = number; });
  }
};

// A longer column, which stays in global memory.
struct LongColumn {
  static constexpr bool kIsShort = false;
  float* state;
  int64_t count, step;

  TS_MEMBER_INLINE LongColumn(float* from, int64_t length, int64_t apart) : state(from), count(length), step(apart) {}
  template <class Visit>
  TS_MEMBER_INLINE void look(Visit visit) const {
    go_through_column(count, [&](int64_t i) { return state[i * step]; }, visit, [](int64_t, float) {});
  }
  template <class Visit>
  TS_MEMBER_INLINE void change(Visit visit) {
    go_through_column(count, [&](int64_t i) { return state[i * step]; }, visit, [&](int64_t i, float number) { state[i * step] = number; });
  }
  TS_MEMBER_INLINE void end() const {}
};

}  // namespace cuda
}  // namespace twostroke
