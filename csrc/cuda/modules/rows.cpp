// What goes row by row in every model, and sampling. One translation unit: see kernels.cpp.
// Knows: which files there are. Must not know: what they compute.
#include "../kernels/elements.cpp"
#include "../kernels/follow.cpp"
#include "../kernels/norm.cpp"
#include "../kernels/products/embed.cpp"
#include "../kernels/sampling/choose.cpp"
#include "../kernels/sampling/cut.cpp"
#include "../kernels/sampling/look.cpp"
#include "../kernels/sampling/tell.cpp"
#include "../kernels/sampling/weigh.cpp"
