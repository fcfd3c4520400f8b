// Products of the common stored kinds with the many rows of a prompt, on the matrix units. The sums are those of linear_steps, so the bits
// are the same. A warp has 32 rows of the matrix and all tokens of its block, so that codes are unpacked once for many tokens, and it goes
// through all columns. Codes are loaded into registers, one step of 32 columns before they are needed. Rounded activations go through
// shared memory in stages of 64 columns. A group's sums are in registers; the sums of all groups so far are in shared memory. For a gated
// product a block has 64 rows of each half of the matrix.
#include "twostroke/cuda/products/products.h"
#include "twostroke/cuda/products/stored_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kWideEights = kWideTokens / 8, kWideWarps = kWideThreads / kWarp, kWideStages = 3;
constexpr int32_t kGroupUnits = static_cast<int32_t>(kStoredGroup / kStep);  // stages of a group
// 16-byte words of a stage: codes, pairs of two steps, scales of groups
constexpr int32_t kWideCodes = kWideTokens * static_cast<int32_t>(kStep) / 16, kWidePairs = kWideTokens / 2, kWideScales = kWideTokens / 4;
constexpr int32_t kWideStage = kWideCodes + 2 * kWidePairs + kWideScales;

TS_SHARED(Words4, wide_stages, kWideStages * kWideStage);
TS_SHARED(Words4, wide_sums, 2 * kWideEights * kWideThreads);  // four sums of a thread for each eight tokens and each two rows

// A thread is lane 4g + t. Of 32 columns it has 8t .. 8t + 7, and it has rows 4g .. 4g + 3 of its warp's 32 rows. Of each eight tokens it
// has token g as an operand and tokens 2t and 2t + 1 as results.
template <int32_t kKind>
struct WideTile {
  static constexpr StoredLayout kLayout = stored_layout(kKind);
  static constexpr bool kHasPairs = kLayout.minimum != 0 || kLayout.fine != 0;
  static_assert(kLayout.sub == 32 || (kLayout.sub == 16 && !kHasPairs), "pairs belong to 32 columns");

  const TileArgs& args;
  int32_t g, t, strip, first_token;
  StoredRows rows;  // those of the group of the step that comes
  StepColumns coming;
  StoredSuper super;
  float totals[kWideEights][2][4];  // [m]: row 4g + 2m for tokens 2t and 2t + 1, then row 4g + 2m + 1

  TS_MEMBER_INLINE explicit WideTile(const TileArgs& of)
      : args(of), g(warp_lane() / 4), t(warp_lane() % 4),
        strip(strip_of(of, static_cast<int32_t>(block_index()) / of.tiles, warp_index())),
        first_token(static_cast<int32_t>(block_index()) % of.tiles * kWideTokens), rows(rows_at(0)) {}

  // The strip of 32 rows of a warp.
  static TS_MEMBER_INLINE int32_t strip_of(const TileArgs& args, int32_t block, int32_t warp) {
    if (args.gated == 0) return block * kWideWarps + warp;
    return 2 * block + warp % 2 + (warp < 2 ? 0 : static_cast<int32_t>(args.rows / 2) / kStepStrip);
  }

  TS_MEMBER_INLINE StoredRows rows_at(int32_t group) const {
    const int32_t left = args.steps * static_cast<int32_t>(kStep) - group * static_cast<int32_t>(kStoredGroup);
    const int32_t panel = strip / 2 < args.panels ? strip / 2 : args.panels - 1;
    return {kLayout, args.data + panel * args.panel_bytes + group * kLayout.group_bytes,
            left < kStoredGroup ? left : static_cast<int32_t>(kStoredGroup), strip % 2 * kStepStrip + 4 * g};
  }

  // Begins to load step `number` of 32 columns, and the scales of a group with its first step.
  TS_MEMBER_INLINE void load(int32_t number) {
    const int32_t k = number % (2 * kGroupUnits) * 32;
    if (k == 0) {
      rows = rows_at(number / (2 * kGroupUnits));
      super.load(kLayout, rows);
    }
    coming.codes.load(kLayout, rows, k, t);
    coming.numbers.load(kLayout, rows, k);
  }

  // Begins to copy the rounded activations of 64 columns.
  TS_MEMBER_INLINE void copy_unit(int32_t unit) const {
    const int32_t base = unit % kWideStages * kWideStage;
    const int8_t* x = args.q + (int64_t{unit} * args.room + first_token) * kStep;
    TS_EVERY_LANE
    for (int32_t i = 0; i < kWideCodes / kWideThreads; ++i) {
      const int32_t word = i * kWideThreads + thread_index();
      copy_async(wide_stages, base + word, x + word * 16, true);
    }
    if (kHasPairs && thread_index() < 2 * kWidePairs) {
      const TilePair* pairs = args.pairs + (2 * unit + thread_index() / kWidePairs) * args.room + first_token + thread_index() % kWidePairs * 2;
      copy_async(wide_stages, base + kWideCodes + thread_index(), pairs, true);
    }
    if (kLayout.fine == 0 && thread_index() < kWideScales) {
      const float* scales = args.x_scales + unit / kGroupUnits * args.room + first_token + thread_index() * 4;
      copy_async(wide_stages, base + kWideCodes + 2 * kWidePairs + thread_index(), scales, true);
    }
  }

  // Adds the products of one step with eight tokens. a: two operands; b: the tokens; pair: the pairs of tokens 2t and 2t + 1.
  TS_MEMBER_INLINE void add_step(int n, const uint32_t (&a)[2][4], const uint32_t (&b)[2], Words4 pair, const float (&scales)[4], const float (&minima)[4]) {
    TS_EVERY_LANE
    for (int m = 0; m < 2; ++m) {
      constexpr int32_t kBegin = 0x4b400000;  // the bits of kRounder, so that the sum is a float without a conversion
      int32_t whole[4] = {kBegin, kBegin, kBegin, kBegin};
      mma_signed(whole, a[m], b);
      TS_EVERY_LANE
      for (int c = 0; c < 4; ++c) {
        const int r = 2 * m + c / 2;
        const float of_token = float_of(c % 2 == 0 ? pair.x : pair.z), scale = kLayout.fine != 0 ? scales[r] * of_token : scales[r];
        float total = fma(float_of(static_cast<uint32_t>(whole[c])) - kRounder, scale, totals[n][m][c]);
        if (kLayout.minimum != 0) total = fma(minima[r], of_token, total);
        totals[n][m][c] = total;
      }
    }
  }

  // Multiplies step s of a unit by all tokens. a: two operands.
  TS_MEMBER_INLINE void add_all(int32_t unit, int s, const uint32_t (&a)[2][4], const float (&scales)[4], const float (&minima)[4]) {
    const int32_t base = unit % kWideStages * kWideStage;
    TS_EVERY_LANE
    for (int n = 0; n < kWideEights; ++n) {
      const uint64_t both = pair_of(wide_stages, (base + (n * 8 + g) * 4 + t) * 2 + s);
      const uint32_t b[2] = {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
      Words4 pair = {0, 0, 0, 0};
      if (kHasPairs) pair = wide_stages[base + kWideCodes + s * kWidePairs + n * 4 + t];
      add_step(n, a, b, pair, scales, minima);
    }
  }

  // Multiplies the step that was loaded, step s of a unit, and begins to load the next one.
  TS_MEMBER_INLINE void multiply(int32_t unit, int s) {
    uint32_t low[4], high[4];
    float scales[4], minima[4];
    coming.codes.unpack_signed(kLayout, t, low, high);
    const uint32_t a[2][4] = {{low[0], low[1], high[0], high[1]}, {low[2], low[3], high[2], high[3]}};
    StoredNumbers numbers = coming.numbers;
    const StoredSuper own_super = super;
    if (kLayout.sub != 16) numbers.factors(kLayout, own_super, 0, scales, minima);
    if (s == 0 || unit + 1 < args.steps) load(2 * unit + s + 1);
    if (kLayout.sub != 16) return add_all(unit, s, a, scales, minima);
    TS_ONE_BY_ONE
    for (int h = 0; h < 2; ++h) {  // threads with the other 16 columns have zeros
      uint32_t own[2][4];
      TS_EVERY_LANE
      for (int i = 0; i < 8; ++i) own[i / 4][i % 4] = t / 2 == h ? a[i / 4][i % 4] : 0;
      numbers.factors(kLayout, own_super, 0, scales, minima);
      numbers.scales[0] = numbers.scales[1];
      add_all(unit, s, own, scales, minima);
    }
  }

  // Adds the group that ends with this unit.
  TS_MEMBER_INLINE void end_group(int32_t unit) {
    const int32_t scales = (unit % kWideStages * kWideStage + kWideCodes + 2 * kWidePairs) * 2;
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kWideEights; ++i) {
      const int n = i / 2, m = i % 2, place = i * kWideThreads + thread_index();
      const uint64_t both = kLayout.fine != 0 ? 0 : pair_of(wide_stages, scales + n * 4 + t);
      Words4 sums = {0, 0, 0, 0};
      if (unit >= kGroupUnits) sums = wide_sums[place];
      TS_EVERY_LANE
      for (int c = 0; c < 4; ++c) {
        const float scale = kLayout.fine != 0 ? 1.0f : float_of(static_cast<uint32_t>(c % 2 == 0 ? both : both >> 32));
        sums[c] = bits_of(fma(totals[n][m][c], scale, float_of(sums[c])));
        totals[n][m][c] = 0.0f;
      }
      wide_sums[place] = sums;
    }
  }

  // Four sums of this thread, or of the one with the same rows of the other half: rows 4g .. 4g + 3 of token 8n + 2t + i.
  static TS_MEMBER_INLINE Words4 sums_of(int n, int i, int32_t thread) {
    const Words4 upper = wide_sums[2 * n * kWideThreads + thread], lower = wide_sums[(2 * n + 1) * kWideThreads + thread];
    return i == 0 ? Words4{upper.x, upper.z, lower.x, lower.z} : Words4{upper.y, upper.w, lower.y, lower.w};
  }
  TS_MEMBER_INLINE float biased(float sum, int64_t row) const { return args.bias == nullptr ? sum : sum + args.bias[row]; }

  // Stores four rows of a token. gates: the sums of the gate, for a gated product.
  TS_MEMBER_INLINE void put(int64_t row, int64_t token, Words4 sums, Words4 gates) const {
    const int64_t width = args.gated != 0 ? args.rows / 2 : args.rows;
    float* out = args.out + token * args.out_stride + row;
    Words4 found = {0, 0, 0, 0};
    const bool aligned = row + 4 <= width && reinterpret_cast<uint64_t>(out) % 16 == 0;
    if (aligned && args.add != 0) found = load16(out);
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      if (row + r >= width) continue;
      float value = biased(float_of(sums[r]), args.gated != 0 ? width + row + r : row + r);
      if (args.gated != 0) value = activated(0, biased(float_of(gates[r]), row + r)) * value;
      if (!aligned) out[r] = args.add != 0 ? out[r] + value : value;
      else found[r] = bits_of(args.add != 0 ? float_of(found[r]) + value : value);
    }
    if (aligned) *reinterpret_cast<Words4*>(out) = found;
  }

  // Stores the sums of tokens 2t and 2t + 1 of each eight. For a gated product each half of the block stores half of the tokens.
  TS_MEMBER_INLINE void put_all() const {
    constexpr int32_t kHalf = kWideThreads / 2;
    const bool gated = args.gated != 0;
    if (gated) barrier();
    const int32_t gate = thread_index() % kHalf, begin = gated && thread_index() >= kHalf ? kWideEights / 2 : 0;
    const int32_t end = gated ? begin + kWideEights / 2 : kWideEights;
    const int64_t row = int64_t{gated ? strip_of(args, static_cast<int32_t>(block_index()) / args.tiles, warp_index() % 2) : strip} * kStepStrip + 4 * g;
    TS_ONE_BY_ONE
    for (int32_t n = begin; n < end; ++n) {
      TS_ONE_BY_ONE
      for (int i = 0; i < 2; ++i) {
        const int64_t token = first_token + 8 * n + 2 * t + i;
        if (token >= args.tokens) continue;
        if (gated) put(row, token, sums_of(n, i, gate + kHalf), sums_of(n, i, gate));
        else put(row, token, sums_of(n, i, thread_index()), {0, 0, 0, 0});
      }
    }
  }

  TS_MEMBER_INLINE void run() {
    load(0);
    wait_for_earlier();
    copy_unit(0);
    commit_copies();
    if (args.steps > 1) copy_unit(1);
    commit_copies();
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kWideEights; ++i) totals[i / 8][i / 4 % 2][i % 4] = 0.0f;
    TS_ONE_BY_ONE
    for (int32_t unit = 0; unit < args.steps; ++unit) {
      wait_copies<1>();
      barrier();
      if (unit + 2 < args.steps) copy_unit(unit + 2);
      commit_copies();
      TS_ONE_BY_ONE
      for (int s = 0; s < 2; ++s) multiply(unit, s);
      if (unit % kGroupUnits == kGroupUnits - 1 || unit == args.steps - 1) end_group(unit);
    }
    put_all();
  }
};

// A block computes one tile. Blocks that run together share rows of the matrix.
#define TS_WIDE(name, kind, blocks)                                                                              \
  TS_KERNEL_AHEAD(name, TileArgs) {                                                                      \
    at_most_threads<blocks * kWideThreads>(); /* with this many registers, so many blocks fit on a multiprocessor */ \
    WideTile<kind>(args).run();                                                                          \
  }
TS_WIDE(linear_wide_flat4, TS_W_FLAT4, 4)
TS_WIDE(linear_wide_flat8, TS_W_FLAT8, 4)
TS_WIDE(linear_wide_super4_min, TS_W_SUPER4_MIN, 3)
TS_WIDE(linear_wide_super6, TS_W_SUPER6, 3)
#undef TS_WIDE

}  // namespace cuda
}  // namespace twostroke
