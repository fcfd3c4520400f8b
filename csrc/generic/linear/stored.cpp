// Unpacks groups of stored codes to bytes and float steps, for every level. The compiler finds the vector instructions.
#include "twostroke/products/stored.h"

namespace twostroke {
namespace {

// Converts `count` float16 or float32 numbers at `from` to floats.
void scales_to(bool floats, const uint8_t* from, int64_t count, float* to) {
  if (floats) {
    memcpy(to, from, static_cast<size_t>(4 * count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    memcpy(&bits, from + 2 * i, 2);
    to[i] = f16_to_f32(bits);
  }
}

// Multiplies (steps, 64) whole multipliers by the group's scales (64).
template <class Whole>
void multiplied(const uint8_t* from, int64_t steps, const float* scales, float* to) {
  for (int64_t s = 0; s < steps; ++s) {
    for (int64_t c = 0; c < kPanel; ++c) to[s * kPanel + c] = static_cast<float>(static_cast<Whole>(from[s * kPanel + c])) * scales[c];
  }
}

void nibbles(const uint8_t* from, int64_t columns, uint8_t more, uint8_t* to) {
  for (int64_t k = 0; k < columns; k += 8, from += kQuadBytes, to += 2 * kQuadBytes) {
    for (int64_t i = 0; i < kQuadBytes; ++i) {
      to[i] = static_cast<uint8_t>((from[i] & 15) + more);
      to[i + kQuadBytes] = static_cast<uint8_t>((from[i] >> 4) + more);
    }
  }
}

// Unpacks blocks of a plane of the codes' highest bits and of nibbles: see stored_layout.py.
template <int kHigh>
void blocks(const uint8_t* from, int64_t columns, uint8_t more, uint8_t* to) {
  constexpr int64_t kBlock = 32 / kHigh;
  constexpr uint8_t kMask = (1 << kHigh) - 1;
  for (int64_t k = 0; k < columns; k += kBlock) {
    const uint8_t* high = from;
    from += kQuadBytes;
    for (int64_t at = 0; at < kBlock; at += 8, from += kQuadBytes, to += 2 * kQuadBytes) {
      const int64_t low_shift = at / 4 * kHigh, high_shift = low_shift + kHigh;
      for (int64_t i = 0; i < kQuadBytes; ++i) {
        to[i] = static_cast<uint8_t>((from[i] & 15) + (high[i] >> low_shift & kMask) * 16 + more);
        to[i + kQuadBytes] = static_cast<uint8_t>((from[i] >> 4) + (high[i] >> high_shift & kMask) * 16 + more);
      }
    }
  }
}

// Unpacks planes of codes that have no nibbles.
template <int kHigh>
void planes(const uint8_t* from, int64_t columns, int64_t block_bytes, uint8_t more, uint8_t* to) {
  constexpr uint8_t kMask = (1 << kHigh) - 1;
  for (int64_t k = 0; k < columns; k += 32 / kHigh, from += block_bytes) {
    for (int shift = 0; shift < 8; shift += kHigh, to += kQuadBytes) {
      for (int64_t i = 0; i < kQuadBytes; ++i) to[i] = static_cast<uint8_t>((from[i] >> shift & kMask) + more);
    }
  }
}

// Adds the third bits of codes, which come after their planes of two bits. A row has two bytes, whose bit 4 i + q belongs to column i of
// quad q.
void add_thirds(const uint8_t* from, int64_t columns, uint8_t* to) {
  from += kQuadBytes;
  for (int64_t k = 0; k < columns; k += 16, from += kQuadBytes * 3 / 2) {
    for (int quad = 0; quad < 4; ++quad, to += kQuadBytes) {
      for (int64_t i = 0; i < kQuadBytes; ++i) {
        to[i] = static_cast<uint8_t>(to[i] + (from[i / 2] >> (i % 2 * 4 + quad) & 1) * 4);
      }
    }
  }
}

// Twice the float of 4 bits, plus 128. The values are 0 1 2 3 4 6 8 12, and the highest bit is the sign. There is no table, so that the
// compiler can use vectors of bytes.
inline uint8_t doubled_one(uint8_t bits) {
  const uint8_t low = bits & 7, large = static_cast<uint8_t>(4 + 2 * (low & 1));
  const uint8_t twice = static_cast<uint8_t>(large & -(low >> 1 & 1)), above = static_cast<uint8_t>(-(low >> 2));
  const uint8_t magnitude = static_cast<uint8_t>(((large + twice) & above) | (low & ~above));
  const uint8_t negative = static_cast<uint8_t>(-(bits >> 3));
  return static_cast<uint8_t>((magnitude ^ negative) - negative + 128);
}

void doubled(const uint8_t* from, int64_t columns, uint8_t* to) {
  for (int64_t k = 0; k < columns; k += 8, from += kQuadBytes, to += 2 * kQuadBytes) {
    for (int64_t i = 0; i < kQuadBytes; ++i) {
      to[i] = doubled_one(from[i] & 15);
      to[i + kQuadBytes] = doubled_one(from[i] >> 4);
    }
  }
}

void iq4(const uint8_t* from, int64_t columns, uint8_t* to) {
  for (int64_t k = 0; k < columns; k += 8, from += kQuadBytes, to += 2 * kQuadBytes) {
    for (int64_t i = 0; i < kQuadBytes; ++i) {
      to[i] = kIQ4Codes[from[i] & 15];
      to[i + kQuadBytes] = kIQ4Codes[from[i] >> 4];
    }
  }
}

}  // namespace

StoredGroup unpack_stored(int32_t kind, const uint8_t* packed, int64_t columns, uint8_t* room) {
  const StoredShape shape = stored_shape(kind);
  const int64_t steps = columns / shape.sub;
  StoredGroup group = {room, reinterpret_cast<float*>(room + kStoredBytes), nullptr, shape.sub, shape.fine};
  if (shape.minimum) group.minima = group.steps + kStoredSteps;
  if (shape.super) {
    float scales[2 * kPanel];
    const int64_t kinds = shape.minimum ? 2 : 1;
    scales_to(false, packed, kinds * kPanel, scales);
    packed += kinds * kPanel * 2;
    multiplied<int8_t>(packed, steps, scales, group.steps);
    if (shape.minimum) multiplied<uint8_t>(packed + steps * kPanel, steps, scales + kPanel, group.minima);
    packed += kinds * steps * kPanel;
  } else {
    const int64_t scale_bytes = steps * kPanel * (shape.floats ? 4 : 2);
    scales_to(shape.floats, packed, steps * kPanel, group.steps);
    packed += scale_bytes;
    if (shape.minimum) {
      scales_to(shape.floats, packed, steps * kPanel, group.minima);
      packed += scale_bytes;
    }
  }
  if (shape.table == kE2M1) {
    doubled(packed, columns, room);
  } else if (shape.table == kIQ4) {
    iq4(packed, columns, room);
  } else if (shape.alone) {
    planes<2>(packed, columns, kQuadBytes * shape.bits / shape.high, static_cast<uint8_t>(128 - shape.offset), room);
    if (shape.third) add_thirds(packed, columns, room);
  } else if (shape.high == 1) {
    blocks<1>(packed, columns, static_cast<uint8_t>(128 - shape.offset), room);
  } else if (shape.high == 2) {
    blocks<2>(packed, columns, static_cast<uint8_t>(128 - shape.offset), room);
  } else if (shape.nibbles) {
    nibbles(packed, columns, static_cast<uint8_t>(128 - shape.offset), room);
  } else {
    group.bytes = const_cast<uint8_t*>(packed);  // the bytes are only read
  }
  return group;
}

}  // namespace twostroke
