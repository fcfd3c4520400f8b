// AVX-512 by AVX2, and Intel's matrix registers in plain C++.
#pragma once
#include "avx512.h"
#include "tiles.h"
