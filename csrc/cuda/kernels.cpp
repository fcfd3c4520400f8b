// All kernels of csrc/cuda as one translation unit, so that they are one module on the device. See simt.h.
// Knows: which files there are. Must not know: what they compute.
#include "kernels/attention_float.cpp"
#include "kernels/attention_whole.cpp"
#include "kernels/elements.cpp"
#include "kernels/embed.cpp"
#include "kernels/kv_write.cpp"
#include "kernels/linear.cpp"
#include "kernels/norm.cpp"
#include "kernels/weigh.cpp"
