// ts_pack_blocks: packs rows of ggml's blocks into a stored kind that keeps their codes and scales, a group of 64 rows at a time. The
// definition is `pack_stored` of ops/stored_layout.py, and the result equals it bit for bit.
#include "twostroke/products/ggml_blocks.h"
#include "twostroke/products/linear.h"
#include "twostroke/transpose.h"

namespace twostroke {
namespace {

constexpr int64_t kQuads = kStoredGroup / 4;

// A group of a panel that is being packed. more: the number that is added to each code of the file to get the code of the kind. columns:
// the packed columns; the file has the first `there` of them. quads: the codes of four columns of each row.
struct GroupOfRows {
  StoredShape shape;
  BlockShape block;
  uint8_t more;
  int64_t columns, there, rows;
  RowOfGroup row[kPanel];
  uint32_t quads[kQuads][kPanel];
};

bool finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

// Fills in the codes of all rows; four columns lie next to each other.
void fill_quads(GroupOfRows& group) {
  for (int64_t r = 0; r < kPanel; r += kEight) {
    for (int64_t quad = 0; quad < kQuads; quad += kEight) {
      EightBits x[kEight];
      TS_UNROLL
      for (int64_t i = 0; i < kEight; ++i) memcpy(&x[i], group.row[r + i].codes + 4 * quad, sizeof(EightBits));
      transpose(x);
      TS_UNROLL
      for (int64_t i = 0; i < kEight; ++i) memcpy(&group.quads[quad + i][r], &x[i], sizeof(EightBits));
    }
  }
}

// Reads the rows. Missing rows and columns get the codes of zeros and scales of zero. Returns false for a scale that is NaN or infinite.
bool read_rows(int32_t type, const uint8_t* raw, int64_t row_bytes, GroupOfRows& group) {
  const bool looked_up = group.block.iq4 && group.shape.table != kIQ4;
  const uint8_t nothing = group.shape.table == kIQ4 ? kNearestToZero : static_cast<uint8_t>(group.shape.offset);
  bool usable = true;
  for (int64_t r = 0; r < kPanel; ++r, raw += row_bytes) {
    RowOfGroup& row = group.row[r];
    memset(&row, 0, sizeof(row));
    int64_t filled = 0;
    if (r < group.rows && group.block.elements < kStoredGroup) {
      for (int64_t block = 0; filled < group.there; ++block, filled += group.block.elements) {
        small_block(type, raw + block * group.block.bytes, block, row);
      }
    } else if (r < group.rows) {
      block_of_256(type, raw, row);
      filled = kStoredGroup;
    }
    for (int64_t k = 0; looked_up && k < filled; ++k) row.codes[k] = kIQ4Codes[row.codes[k]];
    for (int64_t k = 0; k < filled; ++k) row.codes[k] = static_cast<uint8_t>(row.codes[k] + group.more);
    memset(row.codes + filled, nothing, static_cast<size_t>(kStoredGroup - filled));
    for (int64_t s = 0; s < kStoredGroup / 32; ++s) usable = usable && finite(row.scales[s]) && finite(row.least[s]);
  }
  fill_quads(group);
  return usable;
}

// Writes (units, 64) numbers, those of all rows next to each other. Each number stands for `same` units of the kind.
template <class Number, class Of>
uint8_t* write_lanes(const GroupOfRows& group, int64_t units, int64_t same, const Of& of, uint8_t* to) {
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int64_t r = 0; r < kPanel; ++r, to += sizeof(Number)) {
      const Number number = static_cast<Number>(of(group.row[r])[unit / same]);
      memcpy(to, &number, sizeof(Number));
    }
  }
  return to;
}

uint8_t* write_head(const GroupOfRows& group, uint8_t* to) {
  const StoredShape& shape = group.shape;
  const int64_t steps = group.columns / shape.sub, scales = shape.super ? 1 : steps;
  if (shape.table == kE2M1) return write_lanes<float>(group, steps, group.block.floats / shape.sub, [](const RowOfGroup& row) { return row.floats; }, to);
  to = write_lanes<uint16_t>(group, scales, 1, [](const RowOfGroup& row) { return row.scales; }, to);
  if (shape.minimum) to = write_lanes<uint16_t>(group, scales, 1, [](const RowOfGroup& row) { return row.least; }, to);
  if (!shape.super) return to;
  const int64_t same = steps / group.block.units;
  to = write_lanes<uint8_t>(group, steps, same, [](const RowOfGroup& row) { return row.multipliers; }, to);
  if (shape.minimum) to = write_lanes<uint8_t>(group, steps, same, [](const RowOfGroup& row) { return row.minima; }, to);
  return to;
}

uint32_t quad_at(const GroupOfRows& group, int64_t row, int64_t k) { return group.quads[k / 4][row]; }

// Writes one number of 4 bytes for each row.
template <class Of>
uint8_t* write_quads(const Of& of, uint8_t* to) {
  for (int64_t r = 0; r < kPanel; ++r) {
    const uint32_t quad = of(r);
    memcpy(to + 4 * r, &quad, 4);
  }
  return to + kQuadBytes;
}

// Writes the third bits of 16 columns: two bytes for each row, whose bit 4 i + q belongs to column i of quad q.
uint8_t* write_thirds(const GroupOfRows& group, int64_t first, uint8_t* to) {
  for (int64_t r = 0; r < kPanel; ++r, to += 2) {
    const uint8_t* codes = group.row[r].codes + first;
    uint32_t bits = 0;
    for (int k = 0; k < 16; ++k) bits |= static_cast<uint32_t>(codes[k] >> 2 & 1) << (k % 4 * 4 + k / 4);
    to[0] = static_cast<uint8_t>(bits);
    to[1] = static_cast<uint8_t>(bits >> 8);
  }
  return to;
}

void write_codes(const GroupOfRows& group, uint8_t* to) {
  const StoredShape& shape = group.shape;
  if (!shape.nibbles) {
    for (int64_t k = 0; k < group.columns; k += 4) to = write_quads([&](int64_t r) { return quad_at(group, r, k); }, to);
    return;
  }
  const int64_t each = shape.high > 0 ? 32 / shape.high : group.columns;
  const int low_bits = shape.alone ? 0 : 4;
  const uint32_t low = 0x0f0f0f0fu, high = shape.alone ? 0x03030303u : low;
  for (int64_t first = 0; first < group.columns; first += each) {
    if (shape.high > 0) {
      to = write_quads([&](int64_t r) {
        uint32_t plane = 0;
        for (int64_t k = 0; k < each; k += 4) plane |= (quad_at(group, r, first + k) >> low_bits & high) << (k / 4 * shape.high);
        return plane;
      }, to);
    }
    if (shape.third) to = write_thirds(group, first, to);
    for (int64_t k = first; !shape.alone && k < first + each; k += 8) {
      to = write_quads([&](int64_t r) { return (quad_at(group, r, k) & low) | (quad_at(group, r, k + 4) & low) << 4; }, to);
    }
  }
}

// Returns TS_OK, or the reason why blocks of this shape cannot be rows of this kind.
int32_t check_blocks(int32_t kind, const BlockShape& block, int64_t rows, int64_t columns) {
  if (!is_stored_kind(kind) || kind > TS_W_LAST || block.elements == 0) return TS_BAD_FORMAT;
  const StoredShape shape = stored_shape(kind);
  const int64_t more = shape.offset - block.offset, most = int64_t{1} << shape.bits;
  const bool floats = shape.table == kE2M1, iq4 = shape.table == kIQ4;
  if (shape.floats != floats || floats != (block.floats > 0) || (floats && block.floats < shape.sub)) return TS_BAD_FORMAT;
  if (shape.super != (block.units > 0) || (block.minimum && !shape.minimum)) return TS_BAD_FORMAT;
  if (iq4 ? !block.iq4 : more < 0 || block.codes + more > most) return TS_BAD_FORMAT;
  if (shape.super && kStoredGroup / shape.sub < block.units) return TS_BAD_FORMAT;
  return rows < 0 || columns <= 0 || columns % block.elements != 0 || columns % shape.whole != 0 ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace
}  // namespace twostroke

int32_t ts_pack_blocks(int32_t type, const uint8_t* raw, int64_t raw_bytes, int64_t rows, int64_t columns, int32_t kind, uint8_t* data,
                       int64_t data_bytes) {
  using namespace twostroke;
  const BlockShape block = block_shape(type);
  const int32_t status = check_blocks(kind, block, rows, columns);
  if (status != TS_OK) return status;
  if (rows > 0 && (raw == nullptr || data == nullptr)) return TS_BAD_POINTER;
  const int64_t padded = padded_columns(kind, columns), row_bytes = columns / block.elements * block.bytes;
  const int64_t panels = (rows + kPanel - 1) / kPanel;
  if (raw_bytes != rows * row_bytes || data_bytes != panels * stored_panel_bytes(stored_shape(kind), padded)) return TS_BAD_SHAPE;
  GroupOfRows group = {stored_shape(kind), block, static_cast<uint8_t>(stored_shape(kind).offset - block.offset), 0, 0, 0, {}, {}};
  for (int64_t row = 0; row < rows; row += kPanel, raw += kPanel * row_bytes) {
    group.rows = rows - row < kPanel ? rows - row : kPanel;
    for (int64_t first = 0; first < padded; first += kStoredGroup) {
      const int64_t left = columns - first, packed = padded - first;
      group.there = left < kStoredGroup ? left : kStoredGroup;
      group.columns = packed < kStoredGroup ? packed : kStoredGroup;
      if (!read_rows(type, raw + first / block.elements * block.bytes, row_bytes, group)) return TS_BAD_VALUE;
      write_codes(group, write_head(group, data));
      data += stored_panel_bytes(group.shape, group.columns);
    }
  }
  return TS_OK;
}
