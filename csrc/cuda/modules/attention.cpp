// Attention over pages of K and V, and what writes them. One translation unit: see kernels.cpp.
#include "../kernels/attention/merge_segments.cpp"
#include "../kernels/attention/prompt_whole.cpp"
#include "../kernels/attention/segments_float.cpp"
#include "../kernels/attention/segments_whole.cpp"
#include "../kernels/kv_write.cpp"
