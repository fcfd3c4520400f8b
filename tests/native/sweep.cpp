// Runs every kernel over odd sizes, in all formats, with three threads. Results are written as records, so that two levels can be compared
// one by one: a name (64 bytes), the number of bytes (8), the bytes. The program itself checks that a row's bits do not depend on its
// neighbours or on the threads. For tests only.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif

#include "twostroke/ops.h"
#include "twostroke/system/system.h"

static uint32_t state = 1;

static uint32_t draw_bits() { return state = state * 1664525u + 1013904223u; }

static float draw() { return (float)(int32_t)(draw_bits() >> 8) / 8388608.0f - 1.0f; }  // in [-1, 1), exactly representable

static void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static ts_value floats(float* data, int64_t rows, int64_t dim) { return {data, dim, rows, 1, dim}; }

static void must(int32_t status, const char* what) {
  if (status != TS_OK) fail(what);
}

static void* room(int64_t bytes) {
  void* memory = twostroke::aligned_memory(64, (size_t)(bytes + 63) / 64 * 64 + 64);
  if (memory == NULL) fail("no memory");
  return memset(memory, 0, (size_t)(bytes + 63) / 64 * 64 + 64);
}

static void give_back(void* memory) { twostroke::free_aligned(memory); }

static float* draws(int64_t count) {
  float* values = (float*)room(count * 4);
  for (int64_t i = 0; i < count; ++i) values[i] = draw();
  return values;
}

static void say(const char* name, const void* data, int64_t bytes) {
  char label[64] = {0};
  snprintf(label, sizeof label, "%s", name);
  fwrite(label, 1, sizeof label, stdout);
  fwrite(&bytes, 1, sizeof bytes, stdout);
  fwrite(data, 1, (size_t)bytes, stdout);
}

typedef int32_t (*Linear)(ts_context*, const ts_weight*, const float*, int64_t, int64_t, float*, int64_t);

enum { kRows = 9 };

// Multiplies nine rows with three threads, then 1 to 8 of them with one thread, which must give the same bits.
static void multiply(ts_context* three, ts_context* one, const char* name, Linear op, const ts_weight* w, const float* x, int64_t width) {
  float* whole = (float*)room(kRows * width * 4);
  float* part = (float*)room(kRows * width * 4);
  must(op(three, w, x, w->columns, kRows, whole, width), name);
  for (int64_t rows = 1; rows < kRows; ++rows) {
    memset(part, 0, (size_t)(kRows * width * 4));
    must(op(one, w, x, w->columns, rows, part, width), name);
    if (memcmp(part, whole, (size_t)(rows * width * 4)) != 0) fail(name);
  }
  say(name, whole, kRows * width * 4);
  give_back(whole);
  give_back(part);
}

// Gate and up, then as many of the same bytes as the down matrix has.
static void feed_forward(ts_context* three, const char* name, const ts_weight* w, const float* x) {
  const int64_t half = w->rows / 2, padded = (w->columns + 63) / 64 * 64, way = (half + 63) / 64 * 64;
  int64_t rows = padded * ((w->rows + 63) / 64 * 64) / way / 64 * 64;
  if (rows > 64) rows = 64;
  if (rows == 0 || w->group > padded || w->group > way) return;
  const ts_weight down = {w->kind, w->group, rows, half, w->data, w->scales, NULL, 0, 0};
  float *middle = (float*)room(kRows * half * 4), *out = draws(kRows * rows);
  must(ts_feed_forward(three, w, &down, x, w->columns, kRows, middle, half, out, rows), name);
  say(name, out, kRows * rows * 4);
  give_back(middle), give_back(out);
}

// One weight matrix through linear, similar ops, and embed. bytes: the bytes of one panel. Integer kinds are not packed but drawn, so that
// every byte occurs; their scales are powers of two.
static void weights(ts_context* three, ts_context* one, int32_t kind, int32_t group, int64_t rows, int64_t columns) {
  const int64_t panels = (rows + 63) / 64, padded = (columns + 63) / 64 * 64;
  const bool whole_numbers = kind == TS_W_INT8 || kind == TS_W_INT4;
  const int64_t groups = group > 0 ? (padded + group - 1) / group : 0, bytes = panels * padded * 64 * 4;
  uint8_t* data = (uint8_t*)room(bytes);
  uint16_t* scales = group > 0 ? (uint16_t*)room(panels * groups * 64 * 2) : NULL;
  float *x = draws(kRows * columns), *bias = draws(rows), *table = (float*)room(3 * columns * 4);
  char name[64];
  if (whole_numbers) {
    for (int64_t i = 0; i < bytes; ++i) data[i] = (uint8_t)(draw_bits() >> 24);
    for (int64_t i = 0; i < panels * groups * 64; ++i) scales[i] = (uint16_t)(0x3C00 + (draw_bits() >> 30) * 0x80);
  } else {
    float* source = draws(rows * columns);
    must(ts_pack(three, source, 0, columns, 0, rows, kind, group, rows, columns, data, scales, 0), "pack");
    give_back(source);
  }
  const ts_weight w = {kind, group, rows, columns, data, scales, rows % 2 == 1 ? bias : NULL, 0, 0};
  const int how = snprintf(name, sizeof name, "kind%d groups%d group%d rows%d columns%d ", (int)kind, (int)groups, (int)group, (int)rows, (int)columns);
  snprintf(name + how, sizeof name - how, "linear");
  multiply(three, one, name, ts_linear, &w, x, rows);
  snprintf(name + how, sizeof name - how, "add");
  multiply(three, one, name, ts_linear_add, &w, x, rows);
  if (rows % 2 == 0) {
    snprintf(name + how, sizeof name - how, "silu");
    multiply(three, one, name, ts_linear_silu, &w, x, rows / 2);
  }
  if (rows % 2 == 0 && whole_numbers) {
    snprintf(name + how, sizeof name - how, "forward");
    feed_forward(three, name, &w, x);
  }
  const int32_t ids[3] = {0, (int32_t)rows - 1, (int32_t)rows / 2};
  must(twostroke::run(three, ts_embed_args{floats(table, 3, columns), &w, {ids, 3}}), "embed");
  snprintf(name + how, sizeof name - how, "embed");
  say(name, table, 3 * columns * 4);
  give_back(data), give_back(scales), give_back(x), give_back(bias), give_back(table);
}

// NaN, infinities, zeros of both signs and numbers beyond exp's range, through softmax and silu.
static void strange(ts_context* three) {
  const int64_t dim = 32, tokens = 40;
  const float values[7] = {__builtin_nanf(""), __builtin_inff(), -__builtin_inff(), -0.0f, 1e30f, -1e30f, 200.0f};
  ts_kv_layer layer = {TS_KV_F32, 1, (int32_t)dim, (int32_t)dim, 3, room(3 * 16 * 2 * dim * 4), 0};
  float *k = draws(tokens * dim), *v = draws(tokens * dim), *q = draws(7 * dim), *out = (float*)room(7 * dim * 4);
  int32_t slots[40];
  const int32_t table[3] = {2, 0, 1}, starts[2] = {0, 7}, contexts[1] = {40};
  for (int i = 0; i < 40; ++i) slots[i] = table[i / 16] * 16 + i % 16;
  must(ts_kv_write(three, &layer, k, dim, v, dim, slots, tokens), "kv_write");
  for (int i = 0; i < 7; ++i) q[i * dim + i] = values[i];
  must(ts_attention(three, &layer, q, dim, 1, starts, contexts, 1, table, 3, 0.17f, 0, 0.0f, nullptr, nullptr, 0, out, dim), "attention");
  say("nan attention", out, 7 * dim * 4);
  float *x = draws(7), *gated = (float*)room(7 * 64 * 4), *ones = (float*)room(128 * 4), *data = (float*)room(128 * 4);
  for (int i = 0; i < 128; ++i) ones[i] = 1.0f;
  for (int i = 0; i < 7; ++i) x[i] = values[i];
  must(ts_pack(three, ones, 0, 1, 0, 128, TS_W_F32, 0, 128, 1, data, NULL, 0), "pack");
  const ts_weight w = {TS_W_F32, 0, 128, 1, data, NULL, NULL, 0, 0};
  must(ts_linear_silu(three, &w, x, 1, 7, gated, 64), "silu");
  say("nan silu", gated, 7 * 64 * 4);
}

// The largest numbers that packing makes, all of one sign, so that sums of products are as large as possible.
static void extremes(ts_context* three, ts_context* one, int32_t kind, float weight, float activation) {
  const int64_t rows = 64, columns = 256, group = 256;
  float *source = (float*)room(rows * columns * 4), *x = (float*)room(kRows * columns * 4);
  for (int64_t i = 0; i < rows * columns; ++i) source[i] = weight;
  for (int64_t i = 0; i < kRows * columns; ++i) x[i] = activation;
  for (int64_t i = 0; i < columns; ++i) x[(kRows - 1) * columns + i] = i == 0 ? 127.0f : (float)(i % 250) / 2;  // halves to round
  uint8_t* data = (uint8_t*)room(rows * columns);
  uint16_t* scales = (uint16_t*)room(rows * 2);
  must(ts_pack(three, source, 0, columns, 0, rows, kind, group, rows, columns, data, scales, 0), "pack");
  const ts_weight w = {kind, group, rows, columns, data, scales, NULL, 0, 0};
  char name[64];
  snprintf(name, sizeof name, "kind%d groups1 extreme %.0f %.0f linear", (int)kind, weight, activation);
  multiply(three, one, name, ts_linear, &w, x, rows);
  give_back(source), give_back(x), give_back(data), give_back(scales);
}

// Rows of ggml's blocks. A bit that no byte has keeps scales finite. row_bytes: the bytes of 480 columns, or of 512 for the large blocks.
static void packed_blocks(int32_t type, int64_t columns, int64_t row_bytes, int32_t kind, int64_t panel_bytes) {
  const int64_t rows = 67;
  uint8_t *raw = (uint8_t*)room(rows * row_bytes), *data = (uint8_t*)room(2 * panel_bytes);
  for (int64_t i = 0; i < rows * row_bytes; ++i) raw[i] = (uint8_t)(draw_bits() >> 24 & 0xfb);
  must(ts_pack_blocks(type, raw, rows * row_bytes, rows, columns, kind, data, 2 * panel_bytes), "pack blocks");
  char name[64];
  snprintf(name, sizeof name, "kind%d type%d pack blocks", (int)kind, (int)type);
  say(name, data, 2 * panel_bytes);
  give_back(raw), give_back(data);
}

static void packing(ts_context* three, int32_t kind, int32_t group) {
  const int64_t rows = 130, columns = 200;
  float* source = draws(rows * columns);
  const int64_t groups = group > 0 ? (256 + group - 1) / group : 0;
  uint8_t* data = (uint8_t*)room(192 * 256 * 4);
  uint16_t* scales = (uint16_t*)room(192 * (groups + 1) * 2);
  must(ts_pack(three, source, 0, columns, 0, rows, kind, group, rows, columns, data, scales, 0), "pack");
  char name[64];
  snprintf(name, sizeof name, "kind%d group%d pack data", (int)kind, (int)group);
  say(name, data, 192 * 256 * 4);
  snprintf(name, sizeof name, "kind%d group%d pack scales", (int)kind, (int)group);
  say(name, scales, 192 * groups * 2);
  give_back(source), give_back(data), give_back(scales);
}

// A long chunk, a short one and a decoding row over scattered pages. Each sequence alone must give the same.
static void attention(ts_context* three, ts_context* one, int32_t kind, int64_t dim, int64_t value_dim) {
  const int64_t kv_heads = 2, heads = 6, pages = 24, tokens = 300, width = heads * dim, wide = heads * value_dim;
  const int64_t page_bytes = pages * kv_heads * 16 * ((dim + 31) / 32 * 32 + (value_dim + 31) / 32 * 32 + 16) * 4;
  ts_kv_layer layer = {kind, (int32_t)kv_heads, (int32_t)dim, (int32_t)value_dim, pages, room(page_bytes), 0};
  float *k = draws(tokens * kv_heads * dim), *v = draws(tokens * kv_heads * value_dim);
  int32_t table[3 * 8], slots[300];
  for (int i = 0; i < 24; ++i) table[i] = i * 7 % 24;
  const int32_t contexts[3] = {117, 100, 83};
  for (int s = 0, t = 0; s < 3; ++s) {
    for (int i = 0; i < contexts[s]; ++i, ++t) slots[t] = table[8 * s + i / 16] * 16 + i % 16;
  }
  char name[64];
  must(ts_kv_write(three, &layer, k, kv_heads * dim, v, kv_heads * value_dim, slots, tokens), "kv_write");
  snprintf(name, sizeof name, "kv%d dim%d %d write", (int)kind, (int)dim, (int)value_dim);
  say(name, layer.data, page_bytes);
  const int32_t starts[4] = {0, 70, 77, 78};
  float *q = draws(78 * width), *out = (float*)room(78 * wide * 4), *alone = (float*)room(78 * wide * 4);
  const float heads_of[7] = {0.5f, -2.0f, 30.0f, 0.25f, 0.0f, 1.0f, -0.125f};  // sinks, and slopes from the second on
  for (int window = 0; window <= 33; window += 33) {  // with a window also a soft cap, sinks and slopes
    snprintf(name, sizeof name, "kv%d dim%d %d window%d attention", (int)kind, (int)dim, (int)value_dim, window);
    must(ts_attention(three, &layer, q, width, heads, starts, contexts, 3, table, 8, 0.17f, window, window / 8.0f, window ? heads_of : nullptr, window ? heads_of + 1 : nullptr,
                      window ? 0 : 5, out, wide), name);
    for (int s = 0; s < 3; ++s) {
      const int32_t own[2] = {0, starts[s + 1] - starts[s]};
      const int64_t at = starts[s] * width, to = starts[s] * wide;
      must(ts_attention(one, &layer, q + at, width, heads, own, contexts + s, 1, table + 8 * s, 8, 0.17f, window, window / 8.0f, window ? heads_of : nullptr,
                        window ? heads_of + 1 : nullptr, window ? 0 : 5, alone, wide), name);
      if (memcmp(alone, out + to, (size_t)(own[1] * wide * 4)) != 0) fail(name);
    }
    say(name, out, 78 * wide * 4);
  }
  give_back(layer.data), give_back(k), give_back(v), give_back(q), give_back(out), give_back(alone);
}

// The same for latents: one vector of each position for 18 heads.
static void latents(ts_context* three, ts_context* one, int32_t kind, int64_t latent, int64_t turned) {
  const int64_t heads = 18, pages = 24, tokens = 300, dim = latent + turned;
  const int64_t page_bytes = pages * 16 * ((dim + 31) / 32 * 32 + 8) * 4;
  ts_kv_layer layer = {kind, 1, (int32_t)dim, (int32_t)latent, pages, room(page_bytes), 1};
  float *rows = draws(tokens * dim), *q = draws(78 * heads * latent), *behind = draws(78 * heads * turned);
  float *out = (float*)room(78 * heads * latent * 4), *alone = (float*)room(78 * heads * latent * 4);
  int32_t table[3 * 8], slots[300];
  for (int i = 0; i < 24; ++i) table[i] = i * 7 % 24;
  const int32_t contexts[3] = {117, 100, 83}, starts[4] = {0, 70, 77, 78};
  for (int s = 0, t = 0; s < 3; ++s) {
    for (int i = 0; i < contexts[s]; ++i, ++t) slots[t] = table[8 * s + i / 16] * 16 + i % 16;
  }
  const ts_latent_write_args writing = {&layer, {rows, dim, tokens, 1, dim}, {slots, tokens}};
  must(twostroke::run(three, writing), "latent_write");
  char name[64];
  snprintf(name, sizeof name, "latent%d dim%d %d write", (int)kind, (int)latent, (int)turned);
  say(name, layer.data, page_bytes);
  const ts_latent_attention_args whole = {{out, heads * latent, 78, heads, latent}, {q, heads * latent, 78, heads, latent},
                                          {behind, heads * turned, 78, heads, turned}, &layer, {starts, contexts, table, 3, 8}, 0.17, 0};
  must(twostroke::run(three, whole), "latent_attention");
  for (int s = 0; s < 3; ++s) {
    const int32_t own[2] = {0, starts[s + 1] - starts[s]};
    ts_latent_attention_args part = whole;
    part.out.data = alone, part.q.data = q + starts[s] * heads * latent, part.q_turned.data = behind + starts[s] * heads * turned;
    part.out.rows = part.q.rows = part.q_turned.rows = own[1];
    part.batch = {own, contexts + s, table + 8 * s, 1, 8};
    must(twostroke::run(one, part), "latent_attention");
    if (memcmp(alone, out + starts[s] * heads * latent, (size_t)(own[1] * heads * latent * 4)) != 0) fail(name);
  }
  snprintf(name, sizeof name, "latent%d dim%d %d attention", (int)kind, (int)latent, (int)turned);
  say(name, out, 78 * heads * latent * 4);
  give_back(layer.data), give_back(rows), give_back(q), give_back(behind), give_back(out), give_back(alone);
}

static void rows_of_floats(ts_context* three, int64_t columns) {
  const int64_t tokens = 19, half = columns / 2;
  float *x = draws(tokens * columns), *w = draws(columns), *out = draws(tokens * columns), *cosines = draws(10 * columns), *sines = draws(10 * columns);
  int32_t positions[19], chosen[19];
  for (int i = 0; i < 19; ++i) positions[i] = i * 3 % 10, chosen[i] = i * 5 % 19;
  char name[64];
  const ts_value in = floats(x, tokens, columns), made = floats(out, tokens, columns);
  must(twostroke::run(three, ts_rope_args{in, {cosines, sines, 10, half}, {positions, tokens}}), "rope");
  snprintf(name, sizeof name, "columns%d rope", (int)columns);
  say(name, x, tokens * columns * 4);
  must(twostroke::run(three, ts_gather_rows_args{made, in, {chosen, tokens}}), "gather_rows");
  snprintf(name, sizeof name, "columns%d gather", (int)columns);
  say(name, out, tokens * columns * 4);
  must(twostroke::run(three, ts_rms_norm_args{made, in, {w, columns}, 1e-5f}), "rms_norm");
  snprintf(name, sizeof name, "columns%d rms_norm", (int)columns);
  say(name, out, tokens * columns * 4);
  must(twostroke::run(three, ts_head_norm_args{in, {w, columns}, 1e-5f}), "head_norm");
  snprintf(name, sizeof name, "columns%d head_norm", (int)columns);
  say(name, x, tokens * columns * 4);
  give_back(x), give_back(w), give_back(out), give_back(cosines), give_back(sines);
}

int main() {
#if defined(_WIN32)
  _setmode(_fileno(stdout), _O_BINARY);  // otherwise each byte 10 becomes two bytes
#endif
  ts_context *three = ts_context_create(3), *one = ts_context_create(1);
  if (three == NULL || one == NULL || ts_abi_version() != TS_ABI_VERSION) return 1;
  must(ts_context_read(three, TS_READ_ONE), "read");
  must(ts_context_read(one, TS_READ_IN_TURN), "read");
  const int32_t levels = ts_levels();
  say("level", ts_level_name(), (int64_t)strlen(ts_level_name()));
  say("levels", &levels, 4);
  const int64_t widths[5] = {1, 31, 64, 127, 300}, outs[4] = {1, 63, 66, 200};
  for (int64_t columns : widths) {
    for (int64_t rows : outs) {
      weights(three, one, TS_W_F32, 0, rows, columns);
      weights(three, one, TS_W_BF16, 0, rows, columns);
      for (int32_t group = 64; group <= 256; group *= 2) {
        weights(three, one, TS_W_INT8, group, rows, columns);
        weights(three, one, TS_W_INT4, group, rows, columns);
      }
    }
  }
  for (int sign = 0; sign < 4; ++sign) {
    extremes(three, one, TS_W_INT8, sign & 1 ? 127.0f : -127.0f, sign & 2 ? 127.0f : -127.0f);
    extremes(three, one, TS_W_INT4, sign & 1 ? 120.0f : -120.0f, sign & 2 ? 127.0f : -127.0f);
  }
  strange(three);
  const int32_t kinds[4] = {TS_W_F32, TS_W_BF16, TS_W_INT8, TS_W_INT4};
  for (int32_t kind : kinds) packing(three, kind, kind < TS_W_INT8 ? 0 : 128);
  packed_blocks(2, 512, 288, TS_W_FLAT4, 18432);         // Q4_0
  packed_blocks(8, 480, 510, TS_W_FLAT8, 34816);         // Q8_0
  packed_blocks(3, 480, 300, TS_W_FLAT4_MIN, 20480);     // Q4_1
  packed_blocks(6, 480, 330, TS_W_FLAT5, 22528);         // Q5_0
  packed_blocks(7, 480, 360, TS_W_FLAT5_MIN, 24576);     // Q5_1
  packed_blocks(7, 480, 360, TS_W_FLAT8_MIN, 36864);     // Q5_1 next to a type of 8 bits
  packed_blocks(10, 512, 168, TS_W_SUPER2_MIN, 12800);   // Q2_K
  packed_blocks(10, 512, 168, TS_W_SUPER4_MIN_16, 20992);  // Q2_K next to Q4_K
  packed_blocks(11, 512, 220, TS_W_SUPER3, 14592);       // Q3_K
  packed_blocks(13, 512, 352, TS_W_SUPER5_MIN, 23040);   // Q5_K
  packed_blocks(14, 512, 420, TS_W_SUPER6, 26880);       // Q6_K
  packed_blocks(20, 480, 270, TS_W_FLAT4_IQ, 18432);     // IQ4_NL
  packed_blocks(20, 480, 270, TS_W_FLAT8, 34816);        // IQ4_NL next to a type of 8 bits
  packed_blocks(23, 512, 272, TS_W_SUPER4_IQ, 17664);    // IQ4_XS
  packed_blocks(39, 512, 272, TS_W_E2M1_32, 20480);      // MXFP4
  packed_blocks(40, 512, 288, TS_W_E2M1_16, 24576);      // NVFP4
  const int64_t dims[3] = {20, 33, 64};
  for (int32_t kind = TS_KV_F32; kind <= TS_KV_INT4; ++kind) {
    for (int64_t dim : dims) attention(three, one, kind, dim, dim);
    attention(three, one, kind, 33, 20);
    latents(three, one, kind, 40, 8);
    latents(three, one, kind, 22, 5);
  }
  const int64_t columns[4] = {2, 16, 50, 300};
  for (int64_t count : columns) rows_of_floats(three, count);
  float* read = draws(1 << 16);
  ts_limit_read(three, read, 1 << 18);
  if (ts_limit_rate(three, TS_W_F32, 10) <= 0 || ts_limit_rate(three, TS_W_INT8, 10) <= 0) return 1;
  give_back(read);
  ts_context_destroy(three);
  ts_context_destroy(one);
  return 0;
}
