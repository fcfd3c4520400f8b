// ts_pack: packs rows of weights, bit for bit as ops/quant/codec.py does, 64 rows at a time with a lane for each row.
#include "twostroke/context.h"
#include "twostroke/products/pack_rounding.h"
#include "twostroke/products/rotate.h"
#include "twostroke/transpose.h"

namespace twostroke {
namespace {

constexpr uint32_t kLimitBits = 0x5d800000u;  // 2^60, an exclusive bound; infinities and NaN are above it
constexpr int kDivisors = 4;  // the divisors 7, 7.5, 8, 8.5

struct PackJob {
  const void* source;
  int32_t source_kind;
  int64_t source_stride, first_row, count, columns, padded;
  int32_t kind;
  int64_t group, rotated;
  uint8_t* data;
  uint16_t* scales;
  float* blocks;  // a (group, 64) block for each thread
  int64_t block_floats;
  int32_t* refused;  // a flag for each thread
};

typedef uint16_t EightHalves __attribute__((vector_size(2 * kEight)));

uint32_t bits_at(const float* from) { return float_bits(*from); }
uint32_t bits_at(const uint16_t* from) { return static_cast<uint32_t>(*from) << 16; }

TS_INLINE void load_eight(const float* from, EightBits& to) { memcpy(&to, from, sizeof(to)); }

TS_INLINE void load_eight(const uint16_t* from, EightBits& to) {
  EightHalves halves;
  memcpy(&halves, from, sizeof(halves));
  to = __builtin_convertvector(halves, EightBits) << 16;
}

// Loads `rows` rows of `columns` columns into a block with 64 lanes. Returns the largest bits of a magnitude.
template <class Source>
uint32_t fill_block(const Source* source, int64_t stride, int64_t rows, int64_t columns, float* block) {
  uint32_t largest = 0;
  const auto look_at = [&](uint32_t bits) {
    const uint32_t magnitude = bits & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  };
  const int64_t whole_rows = rows / kEight * kEight, whole_columns = columns / kEight * kEight;
  EightBits most = {};
  for (int64_t r = 0; r < whole_rows; r += kEight) {
    for (int64_t k = 0; k < whole_columns; k += kEight) {
      EightBits x[kEight];
      TS_UNROLL
      for (int64_t i = 0; i < kEight; ++i) {
        load_eight(source + (r + i) * stride + k, x[i]);
        const EightBits magnitude = x[i] & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
      }
      transpose(x);
      TS_UNROLL
      for (int64_t i = 0; i < kEight; ++i) memcpy(block + (k + i) * kPanel + r, &x[i], sizeof(EightBits));
    }
  }
  for (int64_t i = 0; i < kEight; ++i) look_at(most[i]);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = r < whole_rows ? whole_columns : 0; k < columns; ++k) {
      const uint32_t bits = bits_at(source + r * stride + k);
      look_at(bits);
      memcpy(block + k * kPanel + r, &bits, 4);
    }
  }
  return largest;
}

// Loads columns [first, first + width) of 64 source rows into block (width, 64), with zeros outside the matrix. Returns false for a value
// that cannot be packed.
bool load_block(const PackJob& job, int64_t row, int64_t first, int64_t width, float* block) {
  const int64_t rows = job.count - row < kPanel ? job.count - row : kPanel;
  const int64_t columns = job.columns - first < width ? job.columns - first : width;
  if (rows < kPanel || columns < width) memset(block, 0, static_cast<size_t>(width * kPanel) * 4);
  const int64_t at = row * job.source_stride + first;
  const uint32_t largest =
      job.source_kind == 0 ? fill_block(static_cast<const float*>(job.source) + at, job.source_stride, rows, columns, block)
                           : fill_block(static_cast<const uint16_t*>(job.source) + at, job.source_stride, rows, columns, block);
  return largest < kLimitBits;
}

// Multiplies each 64 columns of block (width, 64) by H / 64, where H is the Hadamard matrix of order 64.
void rotate_block(float* block, int64_t width) {
  for (int64_t k = 0; k < width; k += kRotatedColumns) rotate_lanes(block + k * kPanel, kPanel);
  for (int64_t i = 0; i < width * kPanel; ++i) block[i] *= 1.0f / kRotatedColumns;
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  return static_cast<uint16_t>((bits + (0x7fffu + ((bits >> 16) & 1))) >> 16);
}

// Computes the largest magnitude of each lane.
void magnitudes(const float* block, int64_t width, float* amax) {
  for (int64_t r = 0; r < kPanel; ++r) amax[r] = 0.0f;
  for (int64_t k = 0; k < width; ++k) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float magnitude = magnitude_of(block[k * kPanel + r]);
      amax[r] = magnitude > amax[r] ? magnitude : amax[r];
    }
  }
}

void int8_scales(const float* block, int64_t width, uint16_t* scales) {
  float amax[kPanel];
  magnitudes(block, width, amax);
  for (int64_t r = 0; r < kPanel; ++r) {
    const float scale = amax[r] >= kZeroBelow ? amax[r] / 127.0f : 0.0f;
    scales[r] = static_cast<uint16_t>((float_bits(scale) + 0xffffu) >> 16);
  }
}

// Finds each lane's value of largest magnitude; 0 where that is too small.
void usable_extremes(const float* block, int64_t width, float* extreme) {
  extremes(block, width, extreme);
  for (int64_t r = 0; r < kPanel; ++r) extreme[r] = magnitude_of(extreme[r]) >= kZeroBelow ? extreme[r] : 0.0f;
}

void squared_errors(const float* block, int64_t width, const float* scale, float* error) {
  float inverse[kPanel];
  for (int64_t r = 0; r < kPanel; ++r) {
    inverse[r] = inverse_of(scale[r]);
    error[r] = 0.0f;
  }
  for (int64_t k = 0; k < width; ++k) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float value = block[k * kPanel + r];
      const float difference = value - clip(round_even(value * inverse[r]), -8.0f, 7.0f) * scale[r];
      error[r] += difference * difference;
    }
  }
}

// Finds the best multiplier of 16 columns for each lane's scale, and adds its squared error to `total`.
void best_multipliers(const float* block, const float* scale, float divisor, float* multipliers, float* total) {
  float amax[kPanel], step[kPanel], tried[kPanel], error[kPanel], best[kPanel];
  magnitudes(block, kSubgroup, amax);
  for (int64_t r = 0; r < kPanel; ++r) best[r] = __builtin_inff();
  for (int change = -1; change <= 1; ++change) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float nearest = round_even(amax[r] * inverse_of(magnitude_of(scale[r])) / divisor);
      tried[r] = clip(nearest + static_cast<float>(change), 1.0f, 15.0f);
      step[r] = tried[r] * scale[r];
    }
    squared_errors(block, kSubgroup, step, error);
    for (int64_t r = 0; r < kPanel; ++r) {
      if (!(error[r] < best[r])) continue;
      best[r] = error[r];
      multipliers[r] = tried[r];
    }
  }
  for (int64_t r = 0; r < kPanel; ++r) total[r] += best[r];
}

// Computes the scales (64) and multipliers (width / 16, 64) of one group.
void int4_scales(const float* block, int64_t width, uint16_t* scales, float* multipliers) {
  float extreme[kPanel], scale[kPanel], error[kPanel], best[kPanel];
  float tried[kMaxGroup / kSubgroup * kPanel];
  usable_extremes(block, width, extreme);
  for (int64_t r = 0; r < kPanel; ++r) {
    scales[r] = 0;
    best[r] = __builtin_inff();
  }
  memset(multipliers, 0, static_cast<size_t>(width / kSubgroup * kPanel) * 4);
  for (int i = 0; i < kDivisors; ++i) {
    const float divisor = 7.0f + 0.5f * static_cast<float>(i);
    for (int64_t r = 0; r < kPanel; ++r) {
      scale[r] = bf16_to_f32(f32_to_bf16(-extreme[r] / (15.0f * divisor)));
      error[r] = 0.0f;
    }
    for (int64_t n = 0; n < width / kSubgroup; ++n) {
      best_multipliers(block + n * kSubgroup * kPanel, scale, divisor, tried + n * kPanel, error);
    }
    for (int64_t r = 0; r < kPanel; ++r) {
      if (!(error[r] < best[r]) || extreme[r] == 0.0f) continue;
      best[r] = error[r];
      scales[r] = f32_to_bf16(scale[r]);
      for (int64_t n = 0; n < width / kSubgroup; ++n) multipliers[n * kPanel + r] = tried[n * kPanel + r];
    }
  }
}

// The byte that is stored for a column: its rounded number plus an offset, between 0 and 255.
TS_INLINE uint32_t byte_of(float value, float inverse, float low, float high, int32_t offset) {
  return static_cast<uint32_t>(static_cast<int32_t>(clip(round_even(value * inverse), low, high)) + offset);
}

void pack_int8(const float* block, int64_t width, uint16_t* scales, uint8_t* data) {
  int8_scales(block, width, scales);
  float inverse[kPanel];
  for (int64_t r = 0; r < kPanel; ++r) inverse[r] = inverse_of(bf16_to_f32(scales[r]));
  for (int64_t k = 0; k < width; k += 4, data += 4 * kPanel) {
    const float* columns = block + k * kPanel;
    uint32_t quads[kPanel];
    for (int64_t r = 0; r < kPanel; ++r) {
      uint32_t quad = 0;
      for (int c = 0; c < 4; ++c) quad |= byte_of(columns[c * kPanel + r], inverse[r], -127.0f, 127.0f, 128) << 8 * c;
      quads[r] = quad;
    }
    memcpy(data, quads, sizeof(quads));
  }
}

// Packs eight columns, which have one multiplier in each lane.
void pack_nibbles(const float* block, const float* step, uint8_t* data) {
  uint32_t quads[kPanel];
  for (int64_t r = 0; r < kPanel; ++r) {
    const float inverse = inverse_of(step[r]);
    uint32_t quad = 0;
    for (int c = 0; c < 8; ++c) quad |= byte_of(block[c * kPanel + r], inverse, -8.0f, 7.0f, 8) << (c % 4 * 8 + c / 4 * 4);
    quads[r] = quad;
  }
  memcpy(data, quads, sizeof(quads));
}

void pack_int4(const float* block, int64_t width, uint16_t* scales, uint8_t* data) {
  float multipliers[kMaxGroup / kSubgroup * kPanel], step[kPanel];
  int4_scales(block, width, scales, multipliers);
  for (int64_t n = 0; n < width / kSubgroup; ++n) {
    const float* m = multipliers + n * kPanel;
    uint8_t* at = data + n * kSubgroup / kStep * kInt4StepBytes;
    const int64_t part = n % (kStep / kSubgroup);
    for (int64_t r = 0; r < kPanel; ++r) {
      uint8_t* pair = at + part / 2 * kPanel + r;
      *pair = static_cast<uint8_t>(part % 2 == 0 ? static_cast<int32_t>(m[r]) : *pair | static_cast<int32_t>(m[r]) << 4);
      step[r] = m[r] * bf16_to_f32(scales[r]);
    }
    uint8_t* elements = at + kMultiplierBytes + part * 2 * 4 * kPanel;
    pack_nibbles(block + n * kSubgroup * kPanel, step, elements);
    pack_nibbles(block + (n * kSubgroup + 8) * kPanel, step, elements + 4 * kPanel);
  }
}

void pack_bf16(const float* block, int64_t width, uint8_t* data) {
  for (int64_t k = 0; k < width; ++k) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const uint16_t bits = f32_to_bf16(block[k * kPanel + r]);
      memcpy(data + ((k / 2 * kPanel + r) * 2 + k % 2) * 2, &bits, 2);
    }
  }
}

void pack_task(void* arg, int64_t index, int32_t thread) {
  const PackJob& job = *static_cast<const PackJob*>(arg);
  float* block = job.blocks + thread * job.block_floats;
  const int64_t panel = job.first_row / kPanel + index;
  const int64_t width = job.group;
  uint8_t* data = job.data + panel * panel_bytes(job.kind, job.padded);
  for (int64_t first = 0; first < job.padded; first += width) {
    const int64_t columns = job.padded - first < width ? job.padded - first : width;
    if (!load_block(job, index * kPanel, first, columns, block)) job.refused[thread] = 1;
    if (job.rotated != 0) rotate_block(block, columns);
    uint8_t* to = data + panel_bytes(job.kind, first);
    if (job.kind == TS_W_F32) {
      memcpy(to, block, static_cast<size_t>(columns * kPanel) * 4);
      continue;
    }
    if (job.kind == TS_W_BF16) {
      pack_bf16(block, columns, to);
      continue;
    }
    if (job.kind == TS_W_SUPER6) {
      pack_super6(block, columns, to);
      continue;
    }
    uint16_t* scales = job.scales + (panel * ((job.padded + width - 1) / width) + first / width) * kPanel;
    job.kind == TS_W_INT8 ? pack_int8(block, columns, scales, to) : pack_int4(block, columns, scales, to);
  }
}

int32_t run(ts_context* context, PackJob& job) {
  const int64_t threads = ts_threads(context);
  job.block_floats = job.group * kPanel;
  const size_t flags_bytes = static_cast<size_t>(round_up(threads * 4, 64));
  const size_t block_bytes = static_cast<size_t>(threads * job.block_floats * 4);
  uint8_t* scratch = static_cast<uint8_t*>(ts_scratch(context, flags_bytes + block_bytes));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job.refused = reinterpret_cast<int32_t*>(scratch);
  job.blocks = reinterpret_cast<float*>(scratch + flags_bytes);
  memset(job.refused, 0, flags_bytes);
  ts_parallel(context, (job.count + kPanel - 1) / kPanel, pack_task, &job);
  for (int64_t t = 0; t < threads; ++t) {
    if (job.refused[t]) return TS_BAD_VALUE;
  }
  return TS_OK;
}

}  // namespace
}  // namespace twostroke

extern "C" int32_t ts_pack(ts_context* context, const void* source, int32_t source_kind, int64_t source_stride,
                           int64_t first_row, int64_t count, int32_t kind, int32_t group, int64_t rows, int64_t columns,
                           void* data, uint16_t* scales, int64_t rotated) {
  using namespace twostroke;
  const ts_weight w = {kind, group, rows, columns, data, scales, nullptr, 0, rotated};
  const int32_t status = check_weight(&w);
  if (status != TS_OK) return status;
  if ((source_kind != 0 && source_kind != 1) || (is_stored_kind(kind) && kind != TS_W_SUPER6)) return TS_BAD_FORMAT;
  const int64_t last = first_row + count;
  if (first_row < 0 || first_row % kPanel != 0 || count < 0 || last > rows || source_stride < columns) return TS_BAD_SHAPE;
  if (last < rows && count % kPanel != 0) return TS_BAD_SHAPE;  // the last panel would be shared with another call
  if (count == 0) return TS_OK;
  if (context == nullptr || source == nullptr) return TS_BAD_POINTER;
  PackJob job = {};
  job.source = source;
  job.source_kind = source_kind;
  job.source_stride = source_stride;
  job.first_row = first_row;
  job.count = count;
  job.columns = columns;
  job.padded = padded_columns(kind, columns);
  job.kind = kind;
  job.group = group > 0 ? group : 64;  // floats are packed 64 columns at a time
  job.rotated = rotated;
  job.data = static_cast<uint8_t*>(data);
  job.scales = scales;
  return run(context, job);
}
