// Products with float weights, and adapters. This is one translation unit: see kernels.cpp.
#include "../kernels/products/linear_float.cpp"
#include "../kernels/products/low_rank.cpp"
