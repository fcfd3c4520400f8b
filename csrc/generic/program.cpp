// ts_run: the ops of one step, one after the other, without going back to the caller in between.
// Knows: the ops' signatures. Must not know: what they compute.
#include "twostroke/context.h"

namespace twostroke {
namespace {

int32_t run_product(ts_context* context, const ts_call& call) {
  const ts_weight* weight = static_cast<const ts_weight*>(call.pointers[0]);
  const float* x = static_cast<const float*>(call.pointers[1]);
  float* out = static_cast<float*>(call.pointers[2]);
  const int64_t* n = call.integers;
  switch (call.op) {
    case TS_OP_LINEAR: return ts_linear(context, weight, x, n[0], n[1], out, n[2]);
    case TS_OP_LINEAR_ADD: return ts_linear_add(context, weight, x, n[0], n[1], out, n[2]);
    default: return ts_linear_silu(context, weight, x, n[0], n[1], out, n[2]);
  }
}

int32_t run_feed_forward(ts_context* context, const ts_call& call) {
  void* const* p = call.pointers;
  const int64_t* n = call.integers;
  return ts_feed_forward(context, static_cast<const ts_weight*>(p[0]), static_cast<const ts_weight*>(p[1]), static_cast<const float*>(p[2]),
                         n[0], n[1], static_cast<float*>(p[3]), n[2], static_cast<float*>(p[4]), n[3]);
}

int32_t run_attention(ts_context* context, const ts_call& call) {
  void* const* p = call.pointers;
  const int64_t* n = call.integers;
  return ts_attention(context, static_cast<const ts_kv_layer*>(p[0]), static_cast<const float*>(p[1]), n[0], n[1],
                      static_cast<const int32_t*>(p[2]), static_cast<const int32_t*>(p[3]), n[2], static_cast<const int32_t*>(p[4]), n[3],
                      call.number, static_cast<int32_t>(n[4]), static_cast<float*>(p[5]), n[5]);
}

int32_t run_one(ts_context* context, const ts_call& call) {
  void* const* p = call.pointers;
  const int64_t* n = call.integers;
  switch (call.op) {
    case TS_OP_LINEAR:
    case TS_OP_LINEAR_ADD:
    case TS_OP_LINEAR_SILU: return run_product(context, call);
    case TS_OP_FEED_FORWARD: return run_feed_forward(context, call);
    case TS_OP_ATTENTION: return run_attention(context, call);
    case TS_OP_EMBED:
      return ts_embed(context, static_cast<const ts_weight*>(p[0]), static_cast<const int32_t*>(p[1]), n[0], static_cast<float*>(p[2]), n[1]);
    case TS_OP_RMS_NORM:
      return ts_rms_norm(context, static_cast<const float*>(p[0]), n[0], static_cast<const float*>(p[1]), call.number, n[1], n[2],
                         static_cast<float*>(p[2]), n[3]);
    case TS_OP_HEAD_NORM:
      return ts_head_norm(context, static_cast<float*>(p[0]), n[0], static_cast<const float*>(p[1]), call.number, n[1], n[2], n[3]);
    case TS_OP_ROPE:
      return ts_rope(context, static_cast<float*>(p[0]), n[0], n[1], n[2], n[3], static_cast<const float*>(p[1]),
                     static_cast<const float*>(p[2]), n[4], n[5], static_cast<const int32_t*>(p[3]));
    case TS_OP_KV_WRITE:
      return ts_kv_write(context, static_cast<const ts_kv_layer*>(p[0]), static_cast<const float*>(p[1]), static_cast<const float*>(p[2]),
                         n[0], static_cast<const int32_t*>(p[3]), n[1]);
    case TS_OP_GATHER_ROWS:
      return ts_gather_rows(context, static_cast<const float*>(p[0]), n[0], n[1], static_cast<const int32_t*>(p[1]), n[2], n[3],
                            static_cast<float*>(p[2]), n[4]);
    default: return TS_BAD_FORMAT;
  }
}

}  // namespace
}  // namespace twostroke

int32_t ts_run(ts_context* context, const ts_call* calls, int64_t count, int64_t* ran) {
  if (context == nullptr || ran == nullptr || (calls == nullptr && count > 0)) return TS_BAD_POINTER;
  for (*ran = 0; *ran < count; ++*ran) {
    const int32_t status = twostroke::run_one(context, calls[*ran]);
    if (status != TS_OK) return status;
  }
  return TS_OK;
}
