// The positions at the beginning of a text whose rows have two codes in products with integer weights: see ops/products/linear.py.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kFirstPositions = 6;

}  // namespace twostroke
