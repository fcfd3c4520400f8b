// Products with weights of int8 and int4, and kernels that round rows for products with whole numbers. This is one translation unit: see
// kernels.cpp.
#include "../kernels/products/first_rows.cpp"
#include "../kernels/products/linear_few.cpp"
#include "../kernels/products/linear_one.cpp"
#include "../kernels/products/linear_prompt.cpp"
#include "../kernels/products/linear_row.cpp"
#include "../kernels/products/linear_rows.cpp"
#include "../kernels/products/linear_tile.cpp"
#include "../kernels/products/quantize.cpp"
#include "../kernels/products/quantize_prompt.cpp"
#include "../kernels/products/quantize_tiles.cpp"
