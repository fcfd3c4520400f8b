// Products with weights that keep a file's codes. This is one translation unit: see kernels.cpp.
#include "../kernels/products/linear_steps.cpp"
#include "../kernels/products/linear_stored.cpp"
#include "../kernels/products/linear_wide.cpp"
