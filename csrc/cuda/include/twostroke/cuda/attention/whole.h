// Pages of int8 and int4 as operands of small matrix products. The columns of these products are rows of queries or of weights. Both
// products of attention are sums of whole numbers (ADR 13), so the order of addition does not matter. As in attention/integer.h, a query is
// rounded to bytes, and the weights times V's scales are rounded to 15 bits within each tile.
#pragma once
#include "twostroke/cuda/attention/rows.h"

namespace twostroke {
namespace cuda {

constexpr int kPairTokens = 2 * TS_PAGE_TOKENS;  // the positions of a pair of pages
constexpr float kLargestByte = 127.0f, kLargestWhole = 16383.0f;
constexpr float kSmallestScaled = 1.9259299e-34f;  // the value 2^-112, whose inverse is still finite

// A number is whole * scale, and the largest number becomes largest_whole. NaN or infinity makes every number NaN.
struct Scaling {
  float scale, inverse;

  TS_MEMBER_INLINE Scaling(float largest, float largest_whole) : scale(0.0f), inverse(0.0f) {
    const float kept = larger(kSmallestScaled, largest);
    scale = kept * (1.0f / largest_whole) + (kept - kept);
    inverse = largest_whole / kept;
  }
};

// The whole number is in the low half of the result.
TS_DEVICE_INLINE uint32_t rounded_bits(float number, float inverse) { return bits_of(fma(number, inverse, kRounder)); }
TS_DEVICE_INLINE int32_t rounded(float number, float inverse) { return static_cast<int16_t>(rounded_bits(number, inverse) & 0xffffu); }

// Four weights as digits. Their rounded forms are the low halves of the bits.
struct FourDigits {
  uint32_t high, low;

  TS_MEMBER_INLINE explicit FourDigits(const uint32_t (&bits)[4]) : high(0), low(0) {
    const uint32_t first = chosen_bytes<0x5410>(bits[0], bits[1]), second = chosen_bytes<0x5410>(bits[2], bits[3]);
    high = chosen_bytes<0x6420>(first >> 7, second >> 7);
    low = chosen_bytes<0x6420>(first, second) & 0x7f7f7f7fu;
  }
};

// The largest number among four consecutive threads, which have the same column.
TS_DEVICE_INLINE float most_of_four(float own) {
  own = larger(own, shuffle_across(own, 1));
  return larger(own, shuffle_across(own, 2));
}
TS_DEVICE_INLINE uint32_t most_of_four(uint32_t own) {
  own = larger_bits(own, shuffle_across(own, 1));
  return larger_bits(own, shuffle_across(own, 2));
}
TS_DEVICE_INLINE int32_t sum_of_four(int32_t own) { return sum_of_threads(own, 4); }

// The sum of 16 lanes, of which each of four threads has four. The order is the tree of sum_tree.
TS_DEVICE_INLINE float sum_of_lanes(const float (&own)[4]) {
  float lanes[4];
  TS_EVERY_LANE
  for (int j = 0; j < 4; ++j) {
    lanes[j] = own[j] + shuffle_across(own[j], 2);
    lanes[j] = lanes[j] + shuffle_across(lanes[j], 1);
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// Four bf16 numbers, as they lie in memory.
struct FourScales {
  uint64_t bits;

  TS_MEMBER_INLINE float operator[](int i) const { return widen(static_cast<uint16_t>(bits >> (16 * i))); }
};

// One head of a page. g and t are lane / 4 and lane % 4 of the thread in its warp. An operand B of 32 dimensions or positions has two words
// in each thread: see mma_signed.
struct WholePage {
  const uint8_t* keys;

  TS_MEMBER_INLINE WholePage(const PageLayout& layout, int32_t page, int32_t kv_head) : keys(layout.keys(page, kv_head)) {}
  // The scales of K at positions 4t .. 4t + 3.
  TS_MEMBER_INLINE FourScales key_scales(const PageLayout& layout, int32_t t) const {
    return {*reinterpret_cast<const uint64_t*>(keys + layout.key_bytes + TS_PAGE_TOKENS * layout.value_row_bytes + 8 * t)};
  }
  TS_MEMBER_INLINE FourScales value_scales(const PageLayout& layout, int32_t t) const { return WholePage{keys + 2 * TS_PAGE_TOKENS}.key_scales(layout, t); }
  TS_MEMBER_INLINE const uint32_t* values(const PageLayout& layout) const { return reinterpret_cast<const uint32_t*>(keys + layout.key_bytes); }

 private:
  TS_MEMBER_INLINE explicit WholePage(const uint8_t* from) : keys(from) {}
};

// How the integers of int8 pages lie. For keys, 32 dimensions are two words of four positions. For values, 16 dimensions are a unit, of
// which the thread has 2g and 2g + 1. The bytes after the last dimension may have any value: they are multiplied by zeros, or their sums
// are dropped.
struct BytePages {
  static constexpr int32_t kKeyZero = 128, kKeyLoads = 2;
  static constexpr bool kValuesSigned = true;
  struct Keys {
    Words4 words[kKeyLoads];
  };
  // The row of the page's K (64 bytes) that has the thread's part of 32 dimensions, and the quad of dimensions that is multiplied by its
  // bytes.
  TS_MEMBER_INLINE static int32_t key_row(int32_t step, int32_t t, int32_t part) { return 8 * step + 4 * part + t; }
  TS_MEMBER_INLINE static int32_t query_quad(int32_t step, int32_t t, int32_t part) { return key_row(step, t, part); }
  TS_MEMBER_INLINE static int32_t key_rows(int32_t dim) { return (dim + 3) / 4; }
  TS_MEMBER_INLINE static void key_operand(const Keys& keys, int position, uint32_t (&b)[2]) {
    b[0] = keys.words[0][position];
    b[1] = keys.words[1][position];
  }
  // The thread's part of 32 dimensions of V at positions 4t .. 4t + 3 of a page: dimensions 4g .. 4g + 3. kExact: whether V has all
  // dimensions of the unit; kWhole: whether they lie at a multiple of 16 bytes.
  typedef Words4 Values;
  template <bool kExact, bool kWhole>
  TS_MEMBER_INLINE static Values wide_values(const uint32_t* page, int32_t dim, int32_t unit, int32_t g, int32_t t) {
    const uint32_t* row = page + t * dim;
    const int32_t d = unit * 32 + 4 * g;
    if (kWhole) return load_once(row + (kExact || d < dim ? d : dim - 4));
    Words4 found;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) found[j] = row[d + j < dim ? d + j : dim - 1];
    return found;
  }
  TS_MEMBER_INLINE static uint32_t wide_operand(const Values& loaded, int which) { return loaded[which]; }
  // Quad i (0 or 1) of dimensions has sum `which` of column 2t + `column` as its number j.
  TS_MEMBER_INLINE static int32_t wide_quad(int32_t t, int i) { return 2 * t + i; }
  TS_MEMBER_INLINE static int wide_which(int, int j) { return j; }
  TS_MEMBER_INLINE static int wide_column(int i, int) { return i; }
  // The words of a row of V before dimension d, which is a multiple of 32.
  TS_MEMBER_INLINE static int32_t words_before(int32_t d) { return d; }
  // The same as `values`, for a row of `length` units of 16 bytes in shared memory, which change places by `swap`.
  template <class Room>
  TS_MEMBER_INLINE static uint64_t shared_values(Room& room, int32_t row, int32_t length, int32_t swap, int32_t unit, int32_t g) {
    const int32_t at = unit * 4 + g / 2;
    return pair_of(room, 2 * (row + (at < length ? at ^ swap : 0)) + g % 2);
  }
  TS_MEMBER_INLINE static uint32_t value_operand(uint64_t loaded, int half) { return static_cast<uint32_t>(loaded >> (32 * half)); }
  // The dimension of column 2t + i in the product with operand `half`.
  TS_MEMBER_INLINE static int32_t value_dim(int32_t unit, int32_t t, int half, int i) { return unit * 16 + 4 * t + 2 * i + half; }
};

// Positions 4 * quarter and the three after it, of the thread's part of 32 dimensions. After the last row, the last row is read again.
template <class Pages>
TS_DEVICE_INLINE typename Pages::Keys load_keys(const WholePage& page, int32_t dim, int32_t step, int32_t t, int32_t quarter) {
  typename Pages::Keys found;
  const int32_t last = Pages::key_rows(dim) - 1;
  TS_EVERY_LANE
  for (int part = 0; part < Pages::kKeyLoads; ++part) {
    const int32_t row = Pages::key_row(step, t, part);
    found.words[part] = load_once(page.keys + (row < last ? row : last) * 64 + quarter * 16);
  }
  return found;
}

// How int4 pages lie. A stored word of K is two quads of dimensions. A stored byte of V is dimensions l and 16 + l of 32; a unit has 8 of
// each kind.
struct NibblePages {
  static constexpr int32_t kKeyZero = 8, kKeyLoads = 1;
  static constexpr bool kValuesSigned = false;
  struct Keys {
    Words4 words[kKeyLoads];
  };
  TS_MEMBER_INLINE static int32_t key_row(int32_t step, int32_t t, int32_t) { return 4 * step + t; }
  TS_MEMBER_INLINE static int32_t query_quad(int32_t step, int32_t t, int32_t part) { return 2 * (4 * step + t) + part; }
  TS_MEMBER_INLINE static int32_t key_rows(int32_t dim) { return (dim + 7) / 8; }
  TS_MEMBER_INLINE static void key_operand(const Keys& keys, int position, uint32_t (&b)[2]) {
    b[0] = keys.words[0][position] & 0x0f0f0f0fu;
    b[1] = keys.words[0][position] >> 4 & 0x0f0f0f0fu;
  }
  // Here the thread has dimensions 2g, 2g + 1, 16 + 2g and 17 + 2g.
  typedef uint64_t Values;
  template <bool kExact, bool>
  TS_MEMBER_INLINE static Values wide_values(const uint32_t* page, int32_t dim, int32_t unit, int32_t g, int32_t t) {
    const int32_t blocks = (dim + 31) / 32, block = kExact || unit < blocks ? unit : blocks - 1;
    return *reinterpret_cast<const uint64_t*>(page + (t * blocks + block) * 16 + 2 * g);
  }
  TS_MEMBER_INLINE static uint32_t wide_operand(const Values& loaded, int which) {
    return static_cast<uint32_t>(loaded >> (which % 2 * 32)) >> (which / 2 * 4) & 0x0f0f0f0fu;
  }
  TS_MEMBER_INLINE static int32_t wide_quad(int32_t t, int i) { return 4 * i + t; }
  TS_MEMBER_INLINE static int wide_which(int i, int j) { return 2 * i + j % 2; }
  TS_MEMBER_INLINE static int wide_column(int, int j) { return j / 2; }
  TS_MEMBER_INLINE static int32_t words_before(int32_t d) { return d / 2; }
  template <class Room>
  TS_MEMBER_INLINE static uint64_t shared_values(Room& room, int32_t row, int32_t, int32_t swap, int32_t unit, int32_t g) {
    return word_of(room, 4 * (row + ((unit * 2 + g / 4) ^ swap)) + g % 4);
  }
  TS_MEMBER_INLINE static uint32_t value_operand(uint64_t loaded, int half) { return static_cast<uint32_t>(loaded) >> (4 * half) & 0x0f0f0f0fu; }
  TS_MEMBER_INLINE static int32_t value_dim(int32_t unit, int32_t t, int half, int i) { return unit / 2 * 32 + half * 16 + unit % 2 * 8 + 2 * t + i; }
};

}  // namespace cuda
}  // namespace twostroke
