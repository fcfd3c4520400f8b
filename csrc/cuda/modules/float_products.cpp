// Products with weights of floats, and adapters. One translation unit: see kernels.cpp.
#include "../kernels/products/linear_float.cpp"
#include "../kernels/products/low_rank.cpp"
