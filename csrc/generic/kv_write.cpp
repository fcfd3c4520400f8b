// ts_kv_write: K and V of new positions into their pages, rounded as ops/kv_write.py says. A token writes its own bytes alone.
// Knows: the page layout. Must not know: attention, why these pages.
#include <math.h>
#include <string.h>

#include "twostroke/context.h"
#include "twostroke/kv_page.h"

namespace twostroke {
namespace {

struct WriteJob {
  const ts_kv_layer* layer;
  const float* k;
  const float* v;
  int64_t stride, tokens;
  const int32_t* slots;
};

inline void convert(float value, uint16_t* out) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  *out = is_nan ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void write_f32(const float* k, const float* v, int64_t dim, float* keys, float* values) {
  for (int64_t d = 0; d < dim; ++d) keys[d * TS_PAGE_TOKENS] = k[d];
  memcpy(values, v, static_cast<size_t>(dim) * 4);
}

// Pairs of dimensions of K, pairs of positions of V; an odd last dimension is paired with zeros.
void write_bf16(const float* k, const float* v, int64_t dim, int64_t offset, Bf16Pair* keys, Bf16Pair* values) {
  for (int64_t d = 0; d < dim; d += 2, keys += TS_PAGE_TOKENS) {
    convert(k[d], &keys[offset].first);
    convert(d + 1 < dim ? k[d + 1] : 0.0f, &keys[offset].second);
  }
  const int64_t even = (dim + 1) / 2 * 2;
  values += offset / 2 * even;
  for (int64_t d = 0; d < even; ++d) convert(d < dim ? v[d] : 0.0f, offset % 2 == 0 ? &values[d].first : &values[d].second);
}

inline float widen(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// The first element of the largest magnitude; NaN where any element is NaN.
float extreme_of(const float* x, int64_t dim) {
  float largest = x[0];
  for (int64_t d = 0; d < dim; ++d) {
    if (x[d] != x[d]) return x[d];
    if (fabsf(x[d]) > fabsf(largest)) largest = x[d];
  }
  return largest;
}

// A row's scale as bf16 bits, and what q is clipped to; the law is quantize_rows of ops/kv_pages.py.
struct Rounding {
  float scale, low, high;
  bool usable;

  Rounding(const float* x, int64_t dim, bool nibbles, uint8_t* scale_at) {
    const float extreme = extreme_of(x, dim);
    const bool finite = fabsf(extreme) <= 3.4028234664e38f;
    uint16_t bits = 0x7FC0;
    if (finite) convert(nibbles ? extreme / -8.0f : fabsf(extreme) / 127.0f, &bits);
    memcpy(scale_at, &bits, 2);
    scale = widen(bits);
    usable = finite && (bits & 0x7FFF) != 0;
    low = nibbles ? -8.0f : -127.0f;
    high = nibbles ? 7.0f : 127.0f;
  }

  int32_t operator()(float x) const {
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers, ties to even
    if (!usable) return 0;
    float quotient = x / scale;  // clipped first: a scale that underflowed may leave it far beyond
    quotient = quotient < low ? low : quotient > high ? high : quotient;
    return static_cast<int32_t>((quotient + kMagic) - kMagic);
  }
};

// Four dimensions of a position's K lie together, and one dimension of the V of four positions.
void write_int8(const float* k, const float* v, int64_t dim, int64_t offset, uint8_t* keys, uint8_t* values, uint8_t* k_scale,
                uint8_t* v_scale) {
  const Rounding key(k, dim, false, k_scale), value(v, dim, false, v_scale);
  uint8_t* key_at = keys + offset * kQuad;
  uint8_t* value_at = values + offset / kQuad * dim * kQuad + offset % kQuad;
  for (int64_t d = 0; d < (dim + kQuad - 1) / kQuad * kQuad; ++d)
    key_at[d / kQuad * kQuad * TS_PAGE_TOKENS + d % kQuad] = static_cast<uint8_t>((d < dim ? key(k[d]) : 0) + 128);
  for (int64_t d = 0; d < dim; ++d) value_at[d * kQuad] = static_cast<uint8_t>(value(v[d]));
}

// A byte holds two dimensions of one position: 4 apart for K, 16 apart for V.
void write_int4(const float* k, const float* v, int64_t dim, int64_t offset, uint8_t* keys, uint8_t* values, uint8_t* k_scale,
                uint8_t* v_scale) {
  const Rounding key(k, dim, true, k_scale), value(v, dim, true, v_scale);
  const auto both = [dim](const Rounding& rounding, const float* x, int64_t low, int64_t high) {
    return static_cast<uint8_t>(((low < dim ? rounding(x[low]) : 0) + 8) | ((high < dim ? rounding(x[high]) : 0) + 8) << 4);
  };
  uint8_t* key_at = keys + offset * kQuad;
  for (int64_t d = 0; d < dim; d += 2 * kQuad, key_at += kQuad * TS_PAGE_TOKENS)
    for (int64_t i = 0; i < kQuad; ++i) key_at[i] = both(key, k, d + i, d + i + kQuad);
  const int64_t blocks = (dim + 31) / 32;
  uint8_t* value_at = values + offset / kQuad * blocks * 64 + offset % kQuad;
  for (int64_t block = 0; block < blocks; ++block, value_at += 64)
    for (int64_t i = 0; i < 16; ++i) value_at[i * kQuad] = both(value, v, 32 * block + i, 32 * block + i + 16);
}

void write_head(const WriteJob* job, const KVLayout& layout, int64_t t, int64_t h) {
  const int64_t page = job->slots[t] / TS_PAGE_TOKENS, offset = job->slots[t] % TS_PAGE_TOKENS, dim = job->layer->head_dim;
  const float* k = job->k + t * job->stride + h * dim;
  const float* v = job->v + t * job->stride + h * dim;
  uint8_t* keys = layout.keys(page, h);
  uint8_t* values = layout.values(keys);
  uint8_t* k_scale = layout.key_scales(keys) + 2 * offset;
  uint8_t* v_scale = layout.value_scales(keys) + 2 * offset;
  switch (job->layer->kind) {
    case TS_KV_F32: write_f32(k, v, dim, reinterpret_cast<float*>(keys) + offset, reinterpret_cast<float*>(values) + offset * dim); break;
    case TS_KV_BF16:
      write_bf16(k, v, dim, offset, reinterpret_cast<Bf16Pair*>(keys), reinterpret_cast<Bf16Pair*>(values));
      break;
    case TS_KV_INT8: write_int8(k, v, dim, offset, keys, values, k_scale, v_scale); break;
    default: write_int4(k, v, dim, offset, keys, values, k_scale, v_scale); break;
  }
}

// Tokens of one page share the lines of K, so threads take heads: two of them in one head's page would pass its lines to and fro.
constexpr int64_t kTokensPerTask = 64;
constexpr int64_t kSerialTokens = 4;

void write_task(void* opaque, int64_t index, int32_t) {
  const WriteJob* job = static_cast<const WriteJob*>(opaque);
  const KVLayout layout(job->layer);
  const int64_t blocks = (job->tokens + kTokensPerTask - 1) / kTokensPerTask;
  const int64_t head = index / blocks, first = index % blocks * kTokensPerTask;
  const int64_t last = first + kTokensPerTask < job->tokens ? first + kTokensPerTask : job->tokens;
  for (int64_t t = first; t < last; ++t) write_head(job, layout, t, head);
}

void write_all(ts_context* context, WriteJob& job) {
  const int64_t blocks = (job.tokens + kTokensPerTask - 1) / kTokensPerTask, tasks = blocks * job.layer->kv_heads;
  if (job.tokens > kSerialTokens) return ts_parallel(context, tasks, write_task, &job);
  for (int64_t i = 0; i < tasks; ++i) write_task(&job, i, 0);
}

}  // namespace
}  // namespace twostroke

int32_t ts_kv_write(ts_context* context, const ts_kv_layer* layer, const float* k, const float* v, int64_t kv_stride,
                    const int32_t* slots, int64_t tokens) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = twostroke::check_layer(layer);
  if (status != TS_OK) return status;
  if (tokens < 0 || kv_stride < static_cast<int64_t>(layer->kv_heads) * layer->head_dim) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (k == nullptr || v == nullptr || slots == nullptr) return TS_BAD_POINTER;
  for (int64_t t = 0; t < tokens; ++t)
    if (slots[t] < 0 || slots[t] / TS_PAGE_TOKENS >= layer->num_pages) return TS_BAD_INDEX;
  twostroke::WriteJob job = {layer, k, v, kv_stride, tokens, slots};
  twostroke::write_all(context, job);
  return TS_OK;
}
