// How numbers of f32 and bf16 pages lie in words. kParts: the numbers of a word, which are dimensions of K or positions of V.
#pragma once
#include "twostroke/cuda/attention/rows.h"

namespace twostroke {
namespace cuda {

struct FloatPages {
  static constexpr int kParts = 1;
  // The number of words of a position's K. They lie TS_PAGE_TOKENS words apart.
  TS_MEMBER_INLINE static int32_t key_words(int32_t dim) { return dim; }
  // The place of word `word` of dimension d of a page's V.
  TS_MEMBER_INLINE static int32_t value_word(int32_t word, int32_t d, int32_t dim) { return word * dim + d; }
  TS_MEMBER_INLINE static float part(uint32_t word, int) { return float_of(word); }
};

struct PairPages {
  static constexpr int kParts = 2;
  TS_MEMBER_INLINE static int32_t key_words(int32_t dim) { return (dim + 1) / 2; }
  TS_MEMBER_INLINE static int32_t value_word(int32_t word, int32_t d, int32_t dim) { return word * ((dim + 1) / 2 * 2) + d; }
  TS_MEMBER_INLINE static float part(uint32_t word, int which) { return float_of(which == 0 ? word << 16 : word & 0xffff0000u); }
};

}  // namespace cuda
}  // namespace twostroke
