// The intrinsics for the registers of x86 that kernels use. Including all of <immintrin.h> takes the compiler longer than most kernels do.
#pragma once

#if defined(__clang__)
#define __IMMINTRIN_H  // without this, its parts refuse to be included
#include <mmintrin.h>
#include <xmmintrin.h>
#include <emmintrin.h>
#include <pmmintrin.h>
#include <tmmintrin.h>
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <f16cintrin.h>
#include <fmaintrin.h>
#include <avxvnniintrin.h>
#if defined(TS_LEVEL_AVX512)
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512vnniintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512vldqintrin.h>
#include <avx512bf16intrin.h>
#include <amxintrin.h>
#endif
#else
#include <immintrin.h>
#endif
