// Multiplies several rows of ts_linear for AVX-512 with VNNI, on CPUs without matrix registers that read memory from front to back. A whole
// panel is taken a piece at a time. One band of rows after the other multiplies the whole width of the piece. The sums of the waiting band
// stay in the first-level cache: 16 of them are loaded and stored for every 512 products.
// Products of many rows use blocks of 16 columns and all rows. Here such a block would read each of the four lines of a row of memory in
// another pass. A loop that reads one line in four is slower than memory.
// Measured with two threads, as shares of the rate of a loop that only reads, where memory gives 53 GB/s and where it gives 31 GB/s. 8 rows
// of int8: 64 -> 84% and 86 -> 93%; 12 rows: 55 -> 56% and 80 -> 90%. 4 rows of int4: 57 -> 69% and 77 -> 92%; 8 rows: 34 -> 35% and 62 ->
// 66%. With more rows, products are the limit.
#if defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_AMX)
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

constexpr int64_t kPiece = kNearOfBands / kPanel;  // columns that both bands multiply before the next piece
constexpr int kMostOfOneBand = 5;  // rows of one band; six rows are as good in two bands, and nine do not fit in one

constexpr int upper_band(int rows) { return rows <= kMostOfOneBand ? rows : (rows + 1) / 2; }
constexpr int64_t columns_at_once(int rows) { return rows <= kMostOfOneBand ? kMaxGroup : kPiece; }

// The operands of one piece for all rows: q (quads, kRows, 4), and the waiting sums (kRows, 64).
struct Piece {
  const int8_t* q;
  __m512i* waiting;
};

template <int kRows>
TS_INLINE void take(const __m512i* waiting, __m512i (&integers)[kRows][kVectors]) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) integers[r][j] = _mm512_load_si512(waiting + r * kVectors + j);
  }
}

template <int kRows>
TS_INLINE void put_back(const __m512i (&integers)[kRows][kVectors], __m512i* waiting) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) _mm512_store_si512(waiting + r * kVectors + j, integers[r][j]);
  }
}

// Multiplies rows kFirst to kFirst + kBand of kRows by some quads of bytes, weight + 128. fetch(quads done) is called once in two quads.
template <int kRows, int kFirst, int kBand, class Fetching>
TS_INLINE void band(const uint8_t* bytes, int64_t quads, const Piece& piece, const Fetching& fetch) {
  __m512i integers[kBand][kVectors];
  take(piece.waiting + kFirst * kVectors, integers);
  const int8_t* q = piece.q + kFirst * 4;
  for (int64_t quad = 0; quad < quads; quad += 2, bytes += 2 * kQuadBytes, q += 2 * 4 * kRows) {
    TS_UNROLL
    for (int i = 0; i < 2; ++i) {
      __m512i weights[kVectors];
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) weights[j] = load(bytes + i * kQuadBytes + 64 * j);
      if (i == 0) fetch(quad);
      multiply(weights, q + i * 4 * kRows, 4, integers);
    }
  }
  put_back(integers, piece.waiting + kFirst * kVectors);
}

// Multiplies a whole panel. piece(data, columns, piece) multiplies one piece and returns the place at which the next begins.
template <int kRows, class Multiply>
TS_INLINE void each_piece(const Panel& panel, const TileRows& x, float* sums, const Multiply& multiply) {
  __m512i waiting[kRows][kVectors];
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  const uint8_t *data = panel.data, *scales = panel.scales;
  const int8_t* group_q = x.q;
  int64_t left = panel.columns;
  for (int64_t group = 0; left > 0; ++group, group_q += x.q_group_stride, left -= panel.group, scales += kPanel * 2) {
    begin(x.corrections + group * x.pair_stride, waiting);
    const int8_t* q = group_q;
    for (int64_t rest = left < panel.group ? left : panel.group; rest > 0; rest -= columns_at_once(kRows)) {
      const int64_t columns = rest < columns_at_once(kRows) ? rest : columns_at_once(kRows);
      data = multiply(data, columns, Piece{q, waiting[0]});
      q += columns * kRows;
    }
    fold_columns<Columns512>(waiting, x.scales + group * x.pair_stride, scales, sums);
  }
}

// Each of two bands fetches half of the lines of a piece.
struct Halves {
  const uint8_t* lines;
  TS_INLINE void operator()(int64_t quad) const {
    TS_UNROLL
    for (int i = 0; i < kVectors; ++i) Ahead{kFarOfBands, kNearOfBands}.prefetch(lines + quad * (kQuadBytes / 2) + 64 * i);
  }
};
constexpr auto kNoFetch = [](int64_t) TS_ALWAYS {};

template <int kRows>
void int8_several(const Panel& panel, const TileRows& x, float* sums) {
  constexpr int kUpper = upper_band(kRows), kLower = kRows - kUpper;
  each_piece<kRows>(panel, x, sums, [](const uint8_t* data, int64_t columns, const Piece& piece) TS_ALWAYS {
    if constexpr (kLower == 0) {
      band<kRows, 0, kRows>(data, columns / 4, piece, kNoFetch);
    } else {
      band<kRows, 0, kUpper>(data, columns / 4, piece, Halves{data});
      band<kRows, kUpper, kLower>(data, columns / 4, piece, Halves{data + columns * kPanel / 2});
    }
    return data + columns * kPanel;
  });
}

// Multiplies the first kBand rows of kRows by one step of packed int4, with lines in the order of memory. The bytes are stored for the
// other band.
template <int kRows, int kBand>
TS_INLINE void unpacking_band(const uint8_t* step, const Piece& piece, uint8_t* bytes) {
  __m512i integers[kBand][kVectors];
  take(piece.waiting, integers);
  TS_UNROLL
  for (int part = 0; part < 4; ++part) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const uint8_t* lines = step + kMultiplierBytes + (part * kVectors + j) * 128;
      TS_UNROLL
      for (int i = 0; i < 2; ++i) Ahead{8 * kInt4StepBytes, 2 * kInt4StepBytes}.prefetch(lines + 64 * i);
      unpack_part<128>(step, j, part, [&](int quad, __m512i four) TS_ALWAYS {
        if (kBand < kRows) _mm512_store_si512(bytes + quad * kQuadBytes + 64 * j, four);
        TS_UNROLL
        for (int r = 0; r < kBand; ++r) {
          integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], four, broadcast_quad(piece.q + (quad * kRows + r) * 4));
        }
      });
    }
  }
  put_back(integers, piece.waiting);
}

template <int kRows>
void int4_several(const Panel& panel, const TileRows& x, float* sums) {
  constexpr int kUpper = upper_band(kRows), kLower = kRows - kUpper;
  alignas(64) uint8_t bytes[kStep * kPanel];
  each_piece<kRows>(panel, x, sums, [&](const uint8_t* data, int64_t columns, Piece piece) TS_ALWAYS {
    for (int64_t k = 0; k < columns; k += kStep, data += kInt4StepBytes, piece.q += kStep * kRows) {
      unpacking_band<kRows, kUpper>(data, piece, bytes);
      if constexpr (kLower > 0) band<kRows, kUpper, kLower>(bytes, kStep / 4, piece, kNoFetch);
    }
    return data;
  });
}

}  // namespace

TileKernel several_rows_kernel(int32_t kind, int64_t rows) {
  constexpr int64_t kInt8 = read_on_rows(TS_W_INT8) - kStreamRows, kInt4 = read_on_rows(TS_W_INT4) - kStreamRows;
  if (kind == TS_W_INT4) return kernel_of<TileKernel, kInt4>(rows - kStreamRows, [](auto n) { return int4_several<kStreamRows + n()>; });
  return kernel_of<TileKernel, kInt8>(rows - kStreamRows, [](auto n) { return int8_several<kStreamRows + n()>; });
}

}  // namespace twostroke
#endif
