// The two products of attention over one tile where K and V are integers, by words of 16 bits. They are for many rows on CPUs whose
// products of bytes take three instructions and must not overflow 16 bits (AVX2 without VNNI). K and V of a tile are widened once for all
// rows of a block. A weight is one word and not two digits, so V is multiplied once. Sums are exact, so the bits are those of integer.h.
#pragma once
#include "twostroke/attention/tile_run.h"

namespace twostroke {

constexpr int kWordRows = 6;  // rows of a register tile, with one vector of positions or of outputs
constexpr int64_t kPairWords = 2 * kLanes;  // the words in one vector of pairs

// The bytes of quads as signed numbers, without the offset with which they are stored.
TS_VECTOR_INLINE __m256i signed_keys(const WholeByte*, __m256i stored, int) { return _mm256_xor_si256(stored, _mm256_set1_epi8(-128)); }
TS_VECTOR_INLINE __m256i signed_values(const WholeByte*, __m256i stored, int) { return stored; }
TS_VECTOR_INLINE __m256i signed_keys(const Nibbles*, __m256i stored, int part) {
  return _mm256_sub_epi8(nibbles(part == 0 ? stored : _mm256_srli_epi16(stored, 4)), _mm256_set1_epi8(8));
}
TS_VECTOR_INLINE __m256i signed_values(const Nibbles* row, __m256i stored, int part) { return signed_keys(row, stored, part); }

// Stores eight quads of signed bytes as words: their first two numbers here, and their last two kPairWords farther.
TS_VECTOR_INLINE void store_pairs(__m256i bytes, int16_t* to) {
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), odd = _mm256_srai_epi16(bytes, 8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kPairWords), _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
}

// The stored dimensions of K.
template <typename Element>
int64_t stored_dim(int64_t dim) {
  constexpr int64_t kStep = kQuad * Element::kParts;
  return (dim + kStep - 1) / kStep * kStep;
}

// Widens K of some pages to words. Each page has `dim` / 2 vectors of pairs of dimensions. dim: the number of stored_dim.
template <typename Element>
void words_of_keys(const TileView<Element>& keys, int pages, int64_t dim, int16_t* words) {
  int16_t* to = words;
  for (int p = 0; p < pages; ++p) {
    const Element* row = keys.pages[p];
    for (int64_t d = 0; d < dim; d += kQuad * Element::kParts, row += keys.step) {
      prefetch_ahead(row, keys.ahead[p]);
      const Quads stored = load_quads(&row->bits);
      for (int part = 0; part < Element::kParts; ++part, to += 2 * kPairWords) {
        store_pairs(signed_keys(row, stored.lo, part), to);
        store_pairs(signed_keys(row, stored.hi, part), to + kLanes);
      }
    }
  }
}

// Widens V of positions [first, last), in whole quads, to words. Each vector of outputs has kTile / 2 vectors of pairs of positions.
template <typename Element>
void words_of_values(const TileView<Element>& values, int first, int last, int64_t width, int16_t* words) {
  for (int t = first / kQuad * kQuad; t < last; t += kQuad) {
    const int page = t / TS_PAGE_TOKENS;
    const Element* row = values.pages[page] + t % TS_PAGE_TOKENS / kQuad * values.step;
    int16_t* to = words + t * kLanes;
    for (int64_t d = 0; d < width; d += Element::kParts * kLanes, row += kStored) {
      prefetch_ahead(row, values.ahead[page]);
      const Quads stored = load_quads(&row->bits);
      for (int part = 0; part < Element::kParts; ++part, to += kTile * kLanes) {
        store_pairs(signed_values(row, stored.lo, part), to);
        store_pairs(signed_values(row, stored.hi, part), to + kLanes);
      }
    }
  }
}

// Adds `pairs` pairs of each row's factors, which are `stride` words apart, times vectors of pairs.
template <int kRows>
TS_VECTOR_INLINE void multiply_words(Ints (&sum)[kRows], const int16_t* factors, int64_t stride, const int16_t* by, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i, factors += 2, by += kPairWords) {
    const __m256i* at = reinterpret_cast<const __m256i*>(by);
    const __m256i lo = _mm256_loadu_si256(at), hi = _mm256_loadu_si256(at + 1);
    TS_EVERY
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      memcpy(&pair, factors + r * stride, 4);
      const __m256i all = _mm256_set1_epi32(pair);
      sum[r] = sum[r] + Ints{_mm256_madd_epi16(lo, all), _mm256_madd_epi16(hi, all)};
    }
  }
}

// Computes scores of `rows` rows, which are `columns` words apart, against `pages` pages, as integer_scores does. dim: the number of
// stored_dim.
inline void word_scores(const IntegerQueries& queries, int64_t rows, int64_t columns, const int16_t* keys, int pages, int64_t dim,
                        const float* key_scales, float* scores) {
  each_rows<kWordRows, false>(0, rows, [&](auto count, auto, int64_t r) {
    for (int p = 0; p < pages; ++p) {
      Ints sum[count()];
      TS_EVERY
      for (int i = 0; i < count(); ++i) sum[i] = set1(0);
      multiply_words<count()>(sum, queries.words + r * columns, columns, keys + p * dim * kLanes, dim / 2);
      const int64_t at = p * TS_PAGE_TOKENS;
      TS_EVERY
      for (int i = 0; i < count(); ++i)
        store(scores + (r + i) * kTile + at, to_float(sum[i]) * set1(queries.scales[r + i]) * load(key_scales + at));
    }
  });
}

// Turns scores into weights times V's scales, as words (rows, kTile).
inline void words_of_weights(const float* scores, const Span* spans, int64_t rows, const Partial& partial, const float* rescale,
                             const IntegerWeights& weights) {
  for (int64_t r = 0; r < rows; ++r) {
    int16_t* words = weights.words() + r * kTile;
    Vec v[kTilePages];
    if (!whole_weights(scores, spans, r, partial, rescale, weights, v)) {
      memset(words, 0, kTile * sizeof(int16_t));
      continue;
    }
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + p * kLanes), low_words(v[p]));
  }
}

// Computes out (rows, width) = out * rescale + weights times V of positions [first, last), as integer_values does.
inline void word_values(const IntegerWeights& weights, int64_t rows, const float* rescale, const int16_t* values, int first, int last,
                        int64_t width, float* out) {
  const int64_t begin = first / kQuad * kQuad, pairs = (last - begin + kQuad - 1) / kQuad * kQuad / 2;
  each_rows<kWordRows, false>(0, rows, [&](auto count, auto, int64_t r) {
    for (int64_t d = 0; d < width; d += kLanes) {
      Ints sum[count()];
      TS_EVERY
      for (int i = 0; i < count(); ++i) sum[i] = set1(0);
      multiply_words<count()>(sum, weights.words() + r * kTile + begin, kTile, values + d * kTile + begin * kLanes, pairs);
      TS_EVERY
      for (int i = 0; i < count(); ++i) {
        float* to = out + (r + i) * width + d;
        store(to, fma(to_float(sum[i]), set1(weights.scales[r + i]), load(to) * set1(rescale[r + i])));
      }
    }
  });
}

template <typename Element>
void run_word_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = stored_dim<Element>(job->layer->head_dim), value_padded = job->value_padded, rows = block.rows;
  const Workspace& work = block.work;
  int16_t *keys = reinterpret_cast<int16_t*>(work.keys), *values = reinterpret_cast<int16_t*>(work.values);
  load_scales(job, work.integers, tile);
  words_of_keys(view_of<Element>(tile, 0, kQuad * TS_PAGE_TOKENS), tile.pages, dim, keys);
  word_scores(head.integers, rows, query_columns(job->key_padded), keys, tile.pages, dim, work.integers.key_scales, work.scores);
  if (adjusts_scores(job)) adjust_scores(job, block, head.kv_head, tile, 0, rows, work.scores);
  find_peaks(work.scores, tile.spans, rows, work.found);
  raise_peaks(partial, rows, work.found, work.rescale);
  scale_weights(tile.spans, rows, partial, work.integers, work.found);
  words_of_weights(work.scores, tile.spans, rows, partial, work.rescale, work.integers);
  words_of_values(view_of<Element>(tile, layout.key_bytes, kQuad * layout.value_row_bytes), tile.first, tile.last, value_padded, values);
  word_values(work.integers, rows, work.rescale, values, tile.first, tile.last, value_padded, partial.sum);
}

}  // namespace twostroke
