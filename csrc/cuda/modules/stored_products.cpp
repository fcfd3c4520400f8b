// Products with weights that keep a file's codes. One translation unit: see kernels.cpp.
// Knows: which files there are. Must not know: what they compute.
#include "../kernels/products/linear_steps.cpp"
#include "../kernels/products/linear_stored.cpp"
