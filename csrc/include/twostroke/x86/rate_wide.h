// Hides factors of AVX-512 from the compiler, which would otherwise multiply them once for all rounds.
#pragma once
#include "twostroke/rate.h"
#include "twostroke/x86/simd_avx512.h"

namespace twostroke {

#if defined(TS_NO_WIDE_REGISTERS)  // AVX-512 is emulated
template <class Wide>
TS_VECTOR_INLINE void hide_wide(Wide&, Wide&) {}
#else
template <class Wide>
TS_VECTOR_INLINE void hide_wide(Wide& a, Wide& b) { __asm__ volatile("" : "+v"(a), "+v"(b)); }
#endif

TS_VECTOR_INLINE void hide(Vec& a, Vec& b) { hide_wide(a.v, b.v); }
TS_VECTOR_INLINE Vec next_sum(Vec sum, Vec a, Vec b) { return fma(sum, a, b); }

}  // namespace twostroke
