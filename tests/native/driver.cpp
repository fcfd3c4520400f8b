// Runs every kernel once on numbers from a fixed generator, and writes the results as raw bytes to standard output. The same program built
// for two machines must write the same bytes. For tests only.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "twostroke/ops.h"

static uint32_t state = 1;

static float draw() {  // in [-1, 1), exactly representable, so that every machine gets the same number
  state = state * 1664525u + 1013904223u;
  return (float)(int32_t)(state >> 8) / 8388608.0f - 1.0f;
}

// Memory that is taken here is freed at the end, so that a leak checker reports the kernels alone.
static void* held[256];
static int taken = 0;

static void free_held() {
  while (taken > 0) free(held[--taken]);
}

static void* hold(void* memory) {
  if (memory == NULL || taken == 256) exit(2);
  return held[taken++] = memory;
}

static float* draws(int64_t count) {
  float* values = (float*)hold(malloc((size_t)count * 4));
  for (int64_t i = 0; i < count; ++i) values[i] = draw();
  return values;
}

static void say(const float* values, int64_t count) { fwrite(values, 4, (size_t)count, stdout); }

static void must(int32_t status, const char* what) {
  if (status == TS_OK) return;
  fprintf(stderr, "%s: status %d\n", what, status);
  exit(1);
}

static ts_value floats(float* data, int64_t rows, int64_t heads, int64_t dim) { return {data, heads * dim, rows, heads, dim}; }

static void* aligned(size_t bytes) { return hold(aligned_alloc(64, (bytes + 63) / 64 * 64)); }

// 70 x 96 weights in one format: they are packed here, then 5 rows go through linear and 3 tokens through embed.
static void weights(ts_context* context, int32_t kind, int32_t group) {
  const int64_t rows = 70, columns = 96, tokens = 5;
  float *source = draws(rows * columns), *x = draws(tokens * columns), *out = draws(tokens * rows), *bias = draws(rows);
  void* data = aligned(128 * columns * 4);
  uint16_t* scales = group ? (uint16_t*)aligned((size_t)(128 * ((columns + group - 1) / group) * 2)) : NULL;
  must(ts_pack(context, source, 0, columns, 0, rows, kind, group, rows, columns, data, scales, 0), "pack");
  ts_weight weight = {kind, group, rows, columns, data, scales, bias, 0, 0};
  must(ts_linear(context, &weight, x, columns, tokens, out, rows), "linear");
  must(ts_linear_add(context, &weight, x, columns, tokens, out, rows), "linear_add");
  say(out, tokens * rows);
  must(ts_linear_silu(context, &weight, x, columns, tokens, out, rows / 2), "linear_silu");
  say(out, tokens * rows / 2);
  if (group != 0) {  // as many of the same bytes as the down matrix has
    const ts_weight down = {kind, group, 64, rows / 2, data, scales, NULL, 0, 0};
    float* middle = draws(tokens * rows / 2);
    must(ts_feed_forward(context, &weight, &down, x, columns, tokens, middle, rows / 2, out, 64), "feed_forward");
    say(out, tokens * 64);
  }
  const int32_t ids[3] = {0, 69, 7};
  must(twostroke::run(context, ts_embed_args{floats(x, 3, 1, columns), &weight, {ids, 3}}), "embed");
  say(x, 3 * columns);
}

// Multiplies one row by nine panels, so that some are read in turn and some are left over.
static void streamed(ts_context* context, int32_t kind, int32_t group) {
  const int64_t rows = 576, columns = 192;
  float *source = draws(rows * columns), *x = draws(columns), *out = draws(rows);
  void* data = aligned(rows * columns);
  uint16_t* scales = (uint16_t*)aligned((size_t)(rows * ((columns + group - 1) / group) * 2));
  must(ts_pack(context, source, 0, columns, 0, rows, kind, group, rows, columns, data, scales, 0), "pack");
  ts_weight weight = {kind, group, rows, columns, data, scales, NULL, 0, 0};
  must(ts_linear(context, &weight, x, columns, 1, out, rows), "linear");
  say(out, rows);
}

// Two sequences, one with a chunk of 20 rows and one decoding, over scattered pages.
static void attention(ts_context* context, int32_t kind) {
  const int64_t kv_heads = 2, dim = 20, pages = 9, heads = 6;
  ts_kv_layer layer = {kind, (int32_t)kv_heads, (int32_t)dim, (int32_t)dim, pages, hold(calloc((size_t)(pages * kv_heads * 2 * 16 * dim), 4)), 0};
  float *k = draws(130 * kv_heads * dim), *v = draws(130 * kv_heads * dim), *q = draws(21 * heads * dim), *out = draws(21 * heads * dim);
  const int32_t table[10] = {8, 1, 6, 3, 0, 2, 7, 4, 5, 5};
  int32_t slots[130];
  for (int i = 0; i < 130; ++i) slots[i] = table[i < 70 ? i / 16 : 5 + (i - 70) / 16] * 16 + (i < 70 ? i : i - 70) % 16;
  must(ts_kv_write(context, &layer, k, kv_heads * dim, v, kv_heads * dim, slots, 130), "kv_write");
  const int32_t starts[3] = {0, 20, 21}, contexts[2] = {70, 60};
  const float heads_of[7] = {0.5f, -2.0f, 30.0f, 0.25f, 0.0f, 1.0f, -0.125f};  // sinks, and slopes from the second on
  for (int window = 0; window <= 33; window += 33) {
    must(ts_attention(context, &layer, q, heads * dim, heads, starts, contexts, 2, table, 5, 0.2236f, window, window / 8.0f,
                      window ? heads_of : nullptr, window ? heads_of + 1 : nullptr, window ? 0 : 5, out, heads * dim),
         "attention");
    say(out, 21 * heads * dim);
  }
}

int main() {
  ts_context* context = ts_context_create(2);
  if (context == NULL || ts_abi_version() != TS_ABI_VERSION) return 1;
  weights(context, TS_W_F32, 0);
  weights(context, TS_W_BF16, 0);
  weights(context, TS_W_INT8, 64);
  weights(context, TS_W_INT4, 64);
  streamed(context, TS_W_INT8, 64);
  streamed(context, TS_W_INT4, 64);
  attention(context, TS_KV_F32);
  attention(context, TS_KV_BF16);
  attention(context, TS_KV_INT8);
  attention(context, TS_KV_INT4);
  const int64_t tokens = 3, columns = 50;
  float *x = draws(tokens * columns), *y = draws(tokens * columns), *w = draws(columns), *out = draws(tokens * columns);
  const ts_value xs = floats(x, tokens, 1, columns), outs = floats(out, tokens, 1, columns), heads = floats(out, tokens, 5, 10);
  must(twostroke::run(context, ts_rms_norm_args{outs, xs, {w, columns}, 1e-5f}), "rms_norm");
  must(twostroke::run(context, ts_head_norm_args{heads, {w, 10}, 1e-5f}), "head_norm");
  const int32_t positions[3] = {0, 9, 3}, chosen[3] = {2, 2, 0};
  must(twostroke::run(context, ts_rope_args{heads, {x, y, 10, 5}, {positions, 3}}), "rope");
  must(twostroke::run(context, ts_gather_rows_args{xs, outs, {chosen, 3}}), "gather_rows");
  say(out, tokens * columns);
  say(x, tokens * columns);
  ts_context_destroy(context);
  free_held();
  return 0;
}
