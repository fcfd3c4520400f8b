// Attention over pages of K and V, and the kernels that write these pages. This is one translation unit: see kernels.cpp.
#include "../kernels/attention/merge_segments.cpp"
#include "../kernels/attention/prompt_whole.cpp"
#include "../kernels/attention/segment_scores.cpp"
#include "../kernels/attention/segments_float.cpp"
#include "../kernels/attention/segments_whole.cpp"
#include "../kernels/kv_write.cpp"
