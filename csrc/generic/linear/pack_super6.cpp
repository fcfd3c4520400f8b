// Rounds groups of floats to codes of 6 bits with whole multipliers, bit for bit as src/twostroke/ops/quant/super6.py does, with a lane for
// each row.
#include "twostroke/products/pack_rounding.h"
#include "twostroke/products/stored.h"

namespace twostroke {
namespace {

constexpr int64_t kMostParts = kStoredGroup / kSubgroup;
constexpr int64_t kPartBytes = 3 * kPanel * 4;  // bytes of 16 columns: two high bits of each, then two rows of nibbles
constexpr float kLow = -32.0f, kHigh = 31.0f;
constexpr float kTries[] = {-32.0f, -31.0f, -30.0f, -29.0f, 31.0f, 30.0f, 29.0f, 28.0f};

// Finds the best float step of each lane's 16 columns.
void fitted(const float* part, float* step) {
  float extreme[kPanel], inverse[kPanel], best[kPanel], ratio[kPanel];
  extremes(part, kSubgroup, extreme);
  for (int64_t r = 0; r < kPanel; ++r) {
    extreme[r] = magnitude_of(extreme[r]) >= kZeroBelow ? extreme[r] : 0.0f;
    inverse[r] = inverse_of(extreme[r]);
    best[r] = -1.0f;
    ratio[r] = 0.0f;
  }
  for (const float tried : kTries) {
    float products[kPanel] = {}, squares[kPanel] = {};
    for (int64_t k = 0; k < kSubgroup; ++k) {
      for (int64_t r = 0; r < kPanel; ++r) {
        const float share = part[k * kPanel + r] * inverse[r], q = clip(round_even(share * tried), kLow, kHigh);
        products[r] += share * q;
        squares[r] += q * q;
      }
    }
    for (int64_t r = 0; r < kPanel; ++r) {
      const float own = products[r] * inverse_of(squares[r]), gain = products[r] * own;
      const bool better = gain > best[r];
      best[r] = better ? gain : best[r];
      ratio[r] = better ? own : ratio[r];
    }
  }
  for (int64_t r = 0; r < kPanel; ++r) step[r] = extreme[r] * ratio[r];
}

// Rounds a magnitude between 2^-24 and 65504 up to float16.
uint16_t half_bits(float magnitude) {
  if (magnitude >= 0x1p-14f) return static_cast<uint16_t>((float_bits(magnitude) + 0x1fffu - (112u << 23)) >> 13);
  const float units = magnitude * 0x1p24f, nearest = round_even(units);
  return static_cast<uint16_t>(nearest < units ? nearest + 1.0f : nearest);
}

// The bits of a group's scale, computed from its step of largest magnitude.
uint16_t scale_bits(float extreme) {
  const float scale = extreme / -128.0f;
  if (scale == 0.0f) return 0;
  const uint16_t sign = static_cast<uint16_t>(scale < 0.0f ? 0x8000 : 0);
  return static_cast<uint16_t>(half_bits(clip(magnitude_of(scale), 0x1p-24f, 65504.0f)) | sign);
}

// The squared error of the codes that 16 columns get with each lane's step.
void squared_errors(const float* part, const float* step, float* error) {
  float inverse[kPanel];
  for (int64_t r = 0; r < kPanel; ++r) {
    inverse[r] = inverse_of(step[r]);
    error[r] = 0.0f;
  }
  for (int64_t k = 0; k < kSubgroup; ++k) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float value = part[k * kPanel + r];
      const float difference = value - clip(round_even(value * inverse[r]), kLow, kHigh) * step[r];
      error[r] += difference * difference;
    }
  }
}

// Replaces the best steps of 16 columns by multipliers of the scales, and by the steps that these give.
void rounded_steps(const float* part, const float* scale, float* step, int8_t* multipliers) {
  float nearest[kPanel], own[kPanel], error[kPanel], best[kPanel], chosen[kPanel];
  for (int64_t r = 0; r < kPanel; ++r) {
    nearest[r] = round_even(clip(step[r] * inverse_of(scale[r]), -128.0f, 127.0f));
    best[r] = __builtin_inff();
    chosen[r] = 0.0f;
  }
  for (int change = -1; change <= 1; ++change) {
    float tried[kPanel];
    for (int64_t r = 0; r < kPanel; ++r) {
      tried[r] = clip(nearest[r] + static_cast<float>(change), -128.0f, 127.0f);
      own[r] = tried[r] * scale[r];
    }
    squared_errors(part, own, error);
    for (int64_t r = 0; r < kPanel; ++r) {
      const bool better = error[r] < best[r];
      best[r] = better ? error[r] : best[r];
      chosen[r] = better ? tried[r] : chosen[r];
    }
  }
  for (int64_t r = 0; r < kPanel; ++r) {
    chosen[r] = step[r] == 0.0f ? 0.0f : chosen[r];
    step[r] = chosen[r] * scale[r];
    multipliers[r] = static_cast<int8_t>(chosen[r]);
  }
}

// Packs 16 columns as stored_layout.py defines.
void pack_part(const float* part, const float* step, uint8_t* to) {
  uint32_t quads[4][kPanel];  // the codes of four columns each
  for (int64_t r = 0; r < kPanel; ++r) {
    const float inverse = inverse_of(step[r]);
    for (int n = 0; n < 4; ++n) {
      uint32_t quad = 0;
      for (int c = 0; c < 4; ++c) {
        const float q = clip(round_even(part[(4 * n + c) * kPanel + r] * inverse), kLow, kHigh);
        quad |= static_cast<uint32_t>(static_cast<int32_t>(q) + 32) << 8 * c;
      }
      quads[n][r] = quad;
    }
  }
  constexpr uint32_t kNibbles = 0x0f0f0f0fu, kHighBits = 0x03030303u;
  uint32_t planes[3][kPanel];
  for (int64_t r = 0; r < kPanel; ++r) {
    uint32_t high = 0;
    for (int n = 0; n < 4; ++n) high |= (quads[n][r] >> 4 & kHighBits) << 2 * n;
    planes[0][r] = high;
    planes[1][r] = (quads[0][r] & kNibbles) | (quads[1][r] & kNibbles) << 4;
    planes[2][r] = (quads[2][r] & kNibbles) | (quads[3][r] & kNibbles) << 4;
  }
  memcpy(to, planes, sizeof(planes));
}

}  // namespace

void pack_super6(const float* block, int64_t width, uint8_t* data) {
  const int64_t parts = width / kSubgroup;
  float steps[kMostParts * kPanel], extreme[kPanel], scale[kPanel];
  for (int64_t n = 0; n < parts; ++n) fitted(block + n * kSubgroup * kPanel, steps + n * kPanel);
  extremes(steps, parts, extreme);
  for (int64_t r = 0; r < kPanel; ++r) {
    const uint16_t bits = scale_bits(extreme[r]);
    memcpy(data + 2 * r, &bits, 2);
    scale[r] = f16_to_f32(bits);
  }
  int8_t* multipliers = reinterpret_cast<int8_t*>(data + 2 * kPanel);
  uint8_t* codes = data + (2 + parts) * kPanel;
  for (int64_t n = 0; n < parts; ++n) {
    const float* part = block + n * kSubgroup * kPanel;
    rounded_steps(part, scale, steps + n * kPanel, multipliers + n * kPanel);
    pack_part(part, steps + n * kPanel, codes + n * kPartBytes);
  }
}

}  // namespace twostroke
