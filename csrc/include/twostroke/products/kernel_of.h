// Tables of kernels that are compiled for a number of rows.
#pragma once
#include <stdint.h>

#include <utility>

namespace twostroke {

template <class Kernel, class Make, int... kBefore>
constexpr Kernel kernel_among(std::integer_sequence<int, kBefore...>, int64_t rows, Make make) {
  constexpr Kernel kernels[] = {make(std::integral_constant<int, kBefore + 1>())...};
  return kernels[rows - 1];
}

// Returns the kernel for this many rows, among those for 1..kMost rows. make(number as a constant) names the kernel that was compiled for a
// number.
template <class Kernel, int64_t kMost, class Make>
constexpr Kernel kernel_of(int64_t rows, Make make) {
  return kernel_among<Kernel>(std::make_integer_sequence<int, kMost>(), rows, make);
}

}  // namespace twostroke
