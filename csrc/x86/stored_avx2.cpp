// Products with stored codes in their stored form, for AVX2 and FMA. Few rows are multiplied by a panel that is read once, because a stream
// waits for memory. Many rows are multiplied by one group after the other.
#if defined(TS_LEVEL_AVX2)
#include "twostroke/products/kernel_of.h"
#include "twostroke/x86/stored_codes_avx2.h"

namespace twostroke {
namespace {

constexpr int kTile = 4;  // rows that are multiplied by the codes together

// Registers of columns that are multiplied by the rows together, so that their sums stay in registers.
constexpr int across(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

template <int kRows, int kAcross>
using Integers = __m256i[kRows][kAcross];

// Adds two neighbours of 16 bits to sums of 32 bits.
TS_INLINE __m256i widened(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// The numbers that are subtracted from the 16-bit sums of each step, for one row and some columns of a group. They are kCentre times the
// sums of neighbours 0 and 1, and of 2 and 3, of each quad. to: one for each 4 columns; those of a step are equal.
template <class Source>
TS_INLINE void centres_of(const int8_t* q, int64_t columns, int32_t* to) {
  for (int64_t k = 0; k < columns; k += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + k));
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(Source::kCentre), bytes);
    pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0x4e));
    pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xb1));
    if constexpr (Source::kUnit == 32) pairs = _mm256_add_epi16(pairs, _mm256_permute4x64_epi64(pairs, 0x4e));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k / 4), pairs);
  }
}

// Multiplies both quads of one oct of a unit by one row, for one register of columns. centre: the result of centres_of for the row and
// step.
template <class Source>
TS_INLINE void add_oct(int o, __m256i low, __m256i high, __m256i low_q, __m256i high_q, const int32_t* centre, __m256i& pairs, __m256i& integers) {
  if constexpr (kAnyBytes) {
    integers = add_products(add_products(integers, low, low_q), high, high_q);
    return;
  }
  if constexpr (Source::kSigned) {
    integers = add_products(integers, _mm256_abs_epi8(low), _mm256_sign_epi8(low_q, low));
    integers = add_products(integers, _mm256_abs_epi8(high), _mm256_sign_epi8(high_q, high));
    return;
  }
  const __m256i two = _mm256_add_epi16(_mm256_maddubs_epi16(low, low_q), _mm256_maddubs_epi16(high, high_q));
  if (o > 0) {
    pairs = _mm256_add_epi16(pairs, two);
  } else {
    pairs = Source::kCentre == 0 ? two : _mm256_sub_epi16(two, broadcast_quad(centre));
  }
  if (o == Source::kUnit / 8 - 1) integers = _mm256_add_epi32(integers, widened(pairs));
}

// The centres of row r. Kinds without centres have no memory to point into.
template <class Source>
TS_INLINE const int32_t* centres_at(const int32_t* centres, int r) {
  return Source::kCentre == 0 ? nullptr : centres + r * (kStoredGroup / 4);
}

// Multiplies one unit of nibbles by rows, for the matrix rows from `column` on. q: the rows at the unit's first column; centres: the
// results of centres_of for each row, kStoredGroup / 4 apart. Of the codes and the rows, the fewer stay in registers.
template <class Source, int kRows, int kAcross, class Lines>
TS_INLINE void add_unit(const uint8_t* unit, int64_t column, const int8_t* q, int64_t stride, const int32_t* centres, const Lines& ahead,
                        Integers<kRows, kAcross>& integers) {
  constexpr int kOcts = Source::kUnit / 8, kLines = static_cast<int>(Source::kUnitBytes / kQuadBytes);
  Integers<kRows, kAcross> pairs;
  TS_UNROLL
  for (int o = 0; o < kOcts; ++o, q += 8) {
    TS_UNROLL
    for (int line = o; line < kLines; line += kOcts) {
      TS_UNROLL
      for (int v = 0; v < kAcross; v += 2) ahead.line(unit + 4 * column + line * kQuadBytes + v * kRegisterBytes);
    }
    if constexpr (kRows < kAcross) {
      __m256i low_q[kRows], high_q[kRows];
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) low_q[r] = broadcast_quad(q + r * stride), high_q[r] = broadcast_quad(q + r * stride + 4);
      TS_UNROLL
      for (int v = 0; v < kAcross; ++v) {
        __m256i low, high;
        Source::split(unit, column + v * kLanes, o, low, high);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) {
          add_oct<Source>(o, low, high, low_q[r], high_q[r], centres_at<Source>(centres, r), pairs[r][v], integers[r][v]);
        }
      }
    } else {
      __m256i low[kAcross], high[kAcross];
      TS_UNROLL
      for (int v = 0; v < kAcross; ++v) Source::split(unit, column + v * kLanes, o, low[v], high[v]);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256i low_q = broadcast_quad(q + r * stride), high_q = broadcast_quad(q + r * stride + 4);
        TS_UNROLL
        for (int v = 0; v < kAcross; ++v) {
          add_oct<Source>(o, low[v], high[v], low_q, high_q, centres_at<Source>(centres, r), pairs[r][v], integers[r][v]);
        }
      }
    }
  }
}

// Multiplies 16 columns of codes of 8 bits, in their stored form or as signed bytes. |code| * |q| <= 128 * 127, so the sum of two products
// does not overflow 16 bits.
template <int kRows, int kAcross, class Lines>
TS_INLINE void add_bytes(const uint8_t* from, const int8_t* q, int64_t stride, const Lines& ahead, Integers<kRows, kAcross>& integers) {
  TS_UNROLL
  for (int quad = 0; quad < 4; ++quad, from += kQuadBytes, q += 4) {
    TS_UNROLL
    for (int v = 0; v < kAcross; ++v) {
      if (v % 2 == 0) ahead.line(from + v * kRegisterBytes);
      const __m256i stored = load(from + v * kRegisterBytes), codes = _mm256_xor_si256(stored, _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i factors = kAnyBytes ? stored : _mm256_abs_epi8(codes);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256i quad = broadcast_quad(q + r * stride);
        integers[r][v] = add_products(integers[r][v], factors, kAnyBytes ? quad : _mm256_sign_epi8(quad, codes));
      }
    }
  }
}

// Finishes one step of a group, for some rows. sums_q: the sums of their rounded activations; scales: for fine kinds, the scales of the
// activations.
template <class Source, int kRows>
struct Step {
  static constexpr StoredShape kShape = Source::kShape;
  static constexpr int64_t kUnits = kShape.sub / Source::kUnit, kBytes = kUnits * Source::kUnitBytes;

  const uint8_t* codes;
  const int8_t* q;
  int64_t q_stride;
  const float *multipliers, *minima, *scales;
  const int32_t* centres;
  int32_t sums_q[kRows];

  // Adds the products of 8 * kAcross columns, from `column` on, to waiting (rows, 64).
  template <int kAcross, class Lines>
  TS_INLINE void add(int64_t column, const Lines& ahead, float (&waiting)[kRows][kPanel]) const {
    Integers<kRows, kAcross> integers;
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TS_UNROLL
      for (int v = 0; v < kAcross; ++v) integers[r][v] = _mm256_set1_epi32(sums_q[r] * (Source::kCentre - Source::kMore));
    }
    for (int64_t unit = 0; unit < kUnits; ++unit) {
      const uint8_t* from = codes + unit * Source::kUnitBytes;
      if constexpr (kShape.nibbles) {
        add_unit<Source>(from, column, q + unit * Source::kUnit, q_stride, centres, ahead, integers);
      } else {
        add_bytes(from + 4 * column, q + unit * Source::kUnit, q_stride, ahead, integers);
      }
    }
    TS_UNROLL
    for (int v = 0; v < kAcross; ++v) {
      const int64_t c = column + v * kLanes;
      const __m256 step = _mm256_load_ps(multipliers + c);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256 factor = kShape.fine ? _mm256_mul_ps(step, _mm256_set1_ps(scales[r])) : step;
        __m256 total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers[r][v]), factor, _mm256_load_ps(waiting[r] + c));
        if constexpr (kShape.minimum) {
          const float sum = static_cast<float>(sums_q[r]);
          total = _mm256_fnmadd_ps(_mm256_load_ps(minima + c), _mm256_set1_ps(kShape.fine ? sum * scales[r] : sum), total);
        }
        _mm256_store_ps(waiting[r] + c, total);
      }
    }
  }
};

// Adds one group to sums (rows, 64), for kRows rows.
template <class Source, int kRows, class Ahead>
__attribute__((noinline)) void add_tile(const Head<Source::kKind>& head, const uint8_t* codes, const Group& group, const TileRows& x,
                                        const Ahead& ahead, float* sums) {
  constexpr StoredShape kShape = Source::kShape;
  constexpr int kAcross = across(kRows);
  constexpr int64_t kParts = kShape.sub / kSubgroup;
  const int32_t* corrections = x.sub_corrections + group.first / kSubgroup;
  alignas(64) float waiting[kRows][kPanel] = {};
  alignas(64) int32_t centres[Source::kCentre > 0 ? kRows * kStoredGroup / 4 : 1];
  if constexpr (Source::kCentre > 0) {
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) centres_of<Source>(x.q + r * x.q_stride + group.first, group.columns, centres + r * kStoredGroup / 4);
  }
  for (int64_t s = 0; s < group.columns / kShape.sub; ++s, corrections += kParts, codes += Step<Source, kRows>::kBytes) {
    const int8_t* q = x.q + group.first + s * kShape.sub;
    Step<Source, kRows> step = {codes, q, x.q_stride, head.multipliers + s * kPanel, head.minima, nullptr, nullptr, {}};
    if constexpr (kShape.minimum) step.minima += s * kPanel;
    if constexpr (kShape.fine) step.scales = fine_scales(x, group, s * kShape.sub);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) step.sums_q[r] = eights_of(corrections + r * x.subgroups, kParts) / -8;
    if constexpr (Source::kCentre > 0) step.centres = centres + s * kShape.sub / 4;
    for (int64_t c = 0; c < kPanel; c += kAcross * kLanes) {
      ahead.moment();
      step.template add<kAcross>(c, ahead, waiting);
    }
  }
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m256 scale = kShape.fine ? _mm256_setzero_ps() : _mm256_set1_ps(group_scales(x, group)[r]);
    for (int64_t c = 0; c < kPanel; c += kLanes) {
      float* at = sums + r * kPanel + c;
      const __m256 total = _mm256_load_ps(waiting[r] + c), sum = _mm256_load_ps(at);
      _mm256_store_ps(at, kShape.fine ? _mm256_add_ps(total, sum) : _mm256_fmadd_ps(total, scale, sum));
    }
  }
}

// Multiplies a whole panel, which is read from front to back.
template <int32_t kKind, int kRows, bool kAlone>
void whole_panel(const Panel& panel, const TileRows& x, float* sums) {
  constexpr StoredShape kShape = stored_shape(kKind);
  const LinesBehind<kShape.nibbles && kShape.high < 2, kRows, kAlone> ahead;
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  const uint8_t* data = panel.data;
  Head<kKind> head;
  for (int64_t first = 0, index = 0; first < panel.columns; first += kStoredGroup, ++index) {
    const int64_t left = panel.columns - first, columns = left < kStoredGroup ? left : kStoredGroup;
    const Group group = {data, nullptr, nullptr, index, first, columns};
    const uint8_t* codes = head.read(data, columns / kShape.sub, ahead);
    add_tile<Codes<kKind>, kRows>(head, codes, group, x, ahead, sums);
    data = codes + columns / Codes<kKind>::kUnit * Codes<kKind>::kUnitBytes;
  }
}

template <class Source>
using Tile = void (*)(const Head<Source::kKind>&, const uint8_t* codes, const Group&, const TileRows&, const GroupAfter&, float* sums);

int64_t tiles_of(int64_t rows) { return (rows + kTile - 1) / kTile; }

// Multiplies many rows by one group, which lies in a cache, in tiles of nearly equal height.
template <class Source>
void add_rows(const Head<Source::kKind>& head, const uint8_t* codes, const Group& group, const RowSets& sets) {
  constexpr int64_t kMoments = kPanel / (across(kTile) * kLanes);  // moments of a step
  const int64_t all = tiles_of(sets[0].rows) + tiles_of(sets[1].rows);
  Fetch ahead = fetch_after(Source::kShape, group, all * kMoments * (group.columns / Source::kShape.sub));
  for (RowSet set : sets) {
    for (int64_t tiles = tiles_of(set.rows); tiles > 0; --tiles) {
      const int64_t count = (set.rows + tiles - 1) / tiles;
      kernel_of<Tile<Source>, kTile>(count, [](auto number) { return add_tile<Source, decltype(number)::value, GroupAfter>; })(
          head, codes, group, set.x, GroupAfter{&ahead}, set.sums);
      set = {rows_after(set.x, count), set.rows - count, set.sums + count * kPanel};
    }
  }
}

// For many rows, codes that are two in a byte or in planes become bytes once.
template <int32_t kKind>
__attribute__((noinline)) void unpack(const uint8_t* from, int64_t columns, uint8_t* to) {
  for (int64_t k = 0; k < columns; k += Codes<kKind>::kUnit, from += Codes<kKind>::kUnitBytes) {
    TS_UNROLL
    for (int o = 0; o < Codes<kKind>::kUnit / 8; ++o, to += 2 * kQuadBytes) {
      for (int64_t at = 0; at < kQuadBytes; at += kRegisterBytes) {
        __m256i low, high;
        Codes<kKind>::split(from, at / 4, o, low, high);
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + at), low);
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + kQuadBytes + at), high);
      }
    }
  }
}

template <int32_t kKind>
void group_of_kind(const Group& group, const RowSets& sets) {
  constexpr StoredShape kShape = stored_shape(kKind);
  Head<kKind> head;
  const uint8_t* codes = head.read(group.data, group.columns / kShape.sub, Nothing());
  if constexpr (kShape.nibbles) {
    if (sets[0].rows + sets[1].rows >= kTallRows) {
      alignas(64) uint8_t bytes[kStoredGroup * kPanel];
      unpack<kKind>(codes, group.columns, bytes);
      return add_rows<Unpacked<kKind>>(head, bytes, group, sets);
    }
  }
  add_rows<Codes<kKind>>(head, codes, group, sets);
}

struct Kernels {
  TileKernel (*few)(int64_t rows, bool in_turn);
  void (*some)(const Group&, const RowSets&);
};

template <int32_t kKind>
TileKernel few_rows_of(int64_t rows, bool in_turn) {
  if (stored_shape(kKind).nibbles && rows == 1 && !in_turn) return whole_panel<kKind, 1, stored_shape(kKind).nibbles>;
  return kernel_of<TileKernel, kStoredFewRows>(rows, [](auto number) { return whole_panel<kKind, decltype(number)::value, false>; });
}

template <int32_t kKind>
constexpr Kernels kernels_of() {
  return {few_rows_of<kKind>, group_of_kind<kKind>};
}

template <int32_t... kBefore>
Kernels kernels_among(std::integer_sequence<int32_t, kBefore...>, int32_t kind) {
  constexpr Kernels kernels[] = {kernels_of<TS_W_FLAT8 + kBefore>()...};
  return kernels[kind - TS_W_FLAT8];
}

// One entry for each stored kind.
Kernels kernels(int32_t kind) { return kernels_among(std::make_integer_sequence<int32_t, TS_W_LAST - TS_W_FLAT8 + 1>(), kind); }

}  // namespace

TileKernel stored_few_rows(int32_t kind, int64_t rows, bool in_turn) { return kernels(kind).few(rows, in_turn); }

TileKernel few_rows_kernel(int32_t kind, int64_t rows, bool in_turn) { return stored_few_rows(kind, rows, in_turn); }

void multiply_stored_rows(int32_t kind, const Group& group, const RowSets& sets) { kernels(kind).some(group, sets); }

}  // namespace twostroke
#endif
