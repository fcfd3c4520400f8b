// Products with weights of floats, and adapters. One translation unit: see kernels.cpp.
// Knows: which files there are. Must not know: what they compute.
#include "../kernels/products/linear_float.cpp"
#include "../kernels/products/low_rank.cpp"
