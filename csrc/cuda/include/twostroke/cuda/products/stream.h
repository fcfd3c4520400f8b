// Weights of int8 or int4 in groups of 256 columns, as linear_row and linear_rows read them for up to eight rows of activations. A block
// goes through strips of 32 rows of the matrix, and each of its warps has every eighth group of a strip. A warp's next group is under way while it multiplies one. As soon as a step of 64 columns is multiplied,
// the same step of the next group is loaded in its place. So loads
// never wait for a barrier, also where the next group belongs to another strip.
#pragma once
#include "twostroke/cuda/products/chunks.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kStreamWarps = kStreamThreads / kWarp, kStreamSteps = kStreamGroup / static_cast<int32_t>(kStep);

// A thread's part of a step of 64 columns of a strip, for mma_unsigned. With g = lane / 4 and t = lane % 4, it has the quads of columns
// 4t .. 4t + 3 of the step, of four rows: those of place 4g .. 4g + 3. sums[0] belongs to the first two of them and sums[1] to the others,
// each with rows 2t and 2t + 1 of the activations. row_at returns the row of the strip at a place.
struct StreamInt8 {
  static constexpr int64_t kStepBytes = kStep * kPanel;
  uint32_t words[2][4][2];  // pairs of rows, quads, rows: in the order of the registers that a product takes

  static TS_MEMBER_INLINE int32_t row_at(int32_t place) { return place / 2 % 2 * 16 + place / 4 * 2 + place % 2; }
  // The place of the thread's words in a step. row: the place of the strip's first row in its panel.
  struct Place {
    const uint8_t* words;

    TS_MEMBER_INLINE Place(const uint8_t* step, int32_t row)
        : words(step + (warp_lane() % 4 * 4 * static_cast<int32_t>(kPanel) + row + warp_lane() / 4 * 2) * 4) {}
  };
  // Loads step `at`, counted from the one of `from`.
  TS_MEMBER_INLINE void load(bool there, const Place& from, int at) {
    TS_EVERY_LANE
    for (int i = 0; i < 8; ++i) {
      uint32_t(&pair)[2] = words[i % 2][i / 2];
      load_once_if(there, from.words + at * kStepBytes + (i / 2 * kPanel + i % 2 * 16) * 4, pair[0], pair[1]);
    }
  }
  // x: columns 16t .. 16t + 15 of row g of the activations.
  TS_MEMBER_INLINE void multiply(Words4 x, int32_t (&sums)[2][4]) const {
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const uint32_t(&first)[2] = words[i % 2][i / 2 * 2], (&second)[2] = words[i % 2][i / 2 * 2 + 1];
      const uint32_t a[4] = {first[0], first[1], second[0], second[1]}, b[2] = {x[i / 2 * 2], x[i / 2 * 2 + 1]};
      mma_unsigned(sums[i % 2], a, b);
    }
  }
};

struct StreamInt4 {
  static constexpr int64_t kStepBytes = kInt4StepBytes;
  Words4 words[2];
  uint32_t multipliers;  // a byte for each row, one half of which belongs to the thread's columns

  static TS_MEMBER_INLINE int32_t row_at(int32_t place) { return place; }
  struct Place {
    const uint8_t *words, *multipliers;

    TS_MEMBER_INLINE Place(const uint8_t* step, int32_t row) {
      const int32_t t = warp_lane() % 4, own = row + warp_lane() / 4 * 4;
      words = step + kMultiplierBytes + (t * 2 * static_cast<int32_t>(kPanel) + own) * 4;
      multipliers = step + t / 2 * static_cast<int32_t>(kPanel) + own;
    }
  };
  TS_MEMBER_INLINE void load(bool there, const Place& from, int at) {
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) load_once_if(there, from.words + at * kStepBytes + i * kPanel * 4, words[i]);
    load_once_if(there, from.multipliers + at * kStepBytes, multipliers);
  }
  TS_MEMBER_INLINE void multiply(Words4 x, int32_t (&sums)[2][4]) const {
    const uint32_t four = multipliers >> (warp_lane() % 2 * 4) & 0x0f0f0f0fu;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const uint32_t word = words[i / 2][i % 2 * 2 + j % 2];
        a[j] = unpacked((j < 2 ? word : word >> 4) & 0x0f0f0f0fu, four >> (8 * (i % 2 * 2 + j % 2)) & 255);
      }
      const uint32_t b[2] = {x[i / 2 * 2], x[i / 2 * 2 + 1]};
      mma_unsigned(sums[i % 2], a, b);
    }
  }
};

// A matrix whose groups are streamed.
template <class Step>
struct StreamMatrix {
  const uint8_t* data;
  const uint16_t* scales;
  int64_t panel_bytes;
  int32_t groups, steps, strips, parts, half_rows, halves;

  TS_MEMBER_INLINE explicit StreamMatrix(const LinearArgs& args)
      : data(args.data), scales(args.scales), panel_bytes(args.panel_bytes), groups(static_cast<int32_t>(args.groups)),
        steps(static_cast<int32_t>(args.padded / kStep)), strips(static_cast<int32_t>(strips_of(args, kStreamStrip))),
        parts(static_cast<int32_t>(args.parts)), half_rows(static_cast<int32_t>(args.rows / 2)), halves(args.gated != 0 ? 2 : 1) {}
  // The steps from the first one of a group on; the last group of a row may be short.
  TS_MEMBER_INLINE int32_t steps_from(int32_t group) const { return steps - group * kStreamSteps; }
};

// A thread's part of a group of a strip. `factor` is the group's scale in the row at place `lane`.
template <class Step>
struct StreamGroup {
  Step steps[kStreamSteps];
  uint32_t factor;

  TS_MEMBER_INLINE StreamGroup() : steps{}, factor(0) {}
};

// The group that a warp loads next. For a gated product a block computes the gate's strip first, then the strip that is gated.
template <class Step>
struct StreamCursor {
  const StreamMatrix<Step>& matrix;
  typename Step::Place data;
  const uint16_t* factor;
  int32_t unit, half, group, count;  // count: the steps that are there

  TS_MEMBER_INLINE explicit StreamCursor(const StreamMatrix<Step>& of)
      : matrix(of), data(of.data, 0), unit(static_cast<int32_t>(block_index())), half(0), group(warp_index()) {
    find();
  }
  TS_MEMBER_INLINE void find() {
    const uint32_t first = static_cast<uint32_t>(unit * kStreamStrip + half * matrix.half_rows), panel = first / kPanel, row = first % kPanel;
    data = typename Step::Place(matrix.data + panel * matrix.panel_bytes + group * (kStreamSteps * Step::kStepBytes), static_cast<int32_t>(row));
    factor = matrix.scales + static_cast<uint32_t>((static_cast<int32_t>(panel) * matrix.groups + group) * static_cast<int32_t>(kPanel)) +
             (static_cast<int32_t>(row) + Step::row_at(warp_lane()));
    count = unit < matrix.strips ? matrix.steps_from(group) : 0;
  }
  TS_MEMBER_INLINE void next() {
    group += kStreamWarps;
    if (group >= matrix.groups) {
      group = warp_index();
      half = half + 1 < matrix.halves ? half + 1 : 0;
      if (half == 0) unit += matrix.parts;
    }
    find();
  }
  TS_MEMBER_INLINE void load(StreamGroup<Step>& to, int i) const { to.steps[i].load(i < count, data, i); }
  TS_MEMBER_INLINE void load_factor(StreamGroup<Step>& to) const {
    if (count > 0) to.factor = *factor;
  }
};

// What a thread needs to finish the sum of a row of the matrix, `own` in its half, for one row of activations. It is loaded before the sum
// is ready.
struct StreamFinish {
  float bias, old;

  TS_MEMBER_INLINE void load(const LinearArgs& args, int64_t token, int32_t own, int32_t half) {
    const int64_t rows = args.gated != 0 ? args.rows / 2 : args.rows;
    bias = args.bias != nullptr && own < rows ? args.bias[half * rows + own] : 0.0f;
    old = args.add != 0 && own < rows ? args.out[token * args.out_stride + own] : 0.0f;
    load_before(bias);
    load_before(old);
  }
  // gate: keeps the gate until the value that it multiplies is computed.
  TS_MEMBER_INLINE void store(const LinearArgs& args, int64_t token, int32_t own, int32_t half, float sum, float& gate) const {
    const int64_t rows = args.gated != 0 ? args.rows / 2 : args.rows;
    const float biased = args.bias == nullptr ? sum : sum + bias;
    if (args.gated != 0 && half == 0) gate = biased;
    if (own >= rows || (args.gated != 0 && half == 0)) return;
    const float found = args.gated != 0 ? activated(0, gate) * biased : args.add != 0 ? old + biased : biased;
    args.out[token * args.out_stride + own] = found;
  }
};

}  // namespace cuda
}  // namespace twostroke
