// Products of weights that keep a file's codes with many rows of activations, on the matrix units. The sums are those of linear_stored, so
// the bits are the same. Only a row's sums of whole groups of 256 columns must be added in order. So each warp of a block has a group of
// its own, for 32 rows of the matrix. Codes are loaded directly into registers, some steps before they are needed, also across the end of a
// tile. Each common kind has a kernel, whose layout the compiler knows; one more kernel is for all other kinds.
#include "twostroke/cuda/products/products.h"
#include "twostroke/cuda/products/stored_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kStepWarps = kStepThreads / kWarp, kStepQuads = kStepStrip / 4;

TS_SHARED(Words4, step_totals, kStepWarps * kStepTokens * kStepQuads);  // totals of each warp's group: four rows for a token
TS_SHARED(float, step_scales, kStepWarps * kStepTokens);  // scales of the activations

// The current place of a block: a tile of tokens and of rows of the matrix, and groups from `group` on, one for each warp.
struct StepPlace {
  int32_t unit, matrix, group;

  TS_MEMBER_INLINE static int32_t units(const TileArgs& args) {
    return (static_cast<int32_t>(args.rows) + kStepStrip - 1) / kStepStrip * args.tiles;
  }
  TS_MEMBER_INLINE int32_t strip(const TileArgs& args) const { return unit / args.tiles; }
  // The first token. Blocks that share weights have consecutive numbers.
  TS_MEMBER_INLINE int32_t token(const TileArgs& args, int32_t tokens) const { return unit % args.tiles * tokens; }
  // Moves to this place, or to the next one that has work, because tiles of a bank may have no tokens.
  TS_MEMBER_INLINE void find(const TileArgs& args, int32_t tokens) {
    matrix = 0;
    if (args.matrices == nullptr) return;
    for (; unit < units(args); unit += args.blocks) {
      const int32_t first = token(args, tokens);
      matrix = args.matrices[first / kNarrowTokens];
      if (matrix >= 0 && args.order[first] >= 0) return;
    }
  }
  TS_MEMBER_INLINE void next(const TileArgs& args, int32_t tokens) {
    group += kStepWarps;
    if (group < args.groups) return;
    group = 0;
    unit += args.blocks;
    find(args, tokens);
  }
};

// A thread is lane 4g + t. Of 32 columns it has 8t .. 8t + 7, and it has rows 4g .. 4g + 3 of the strip. Of each eight tokens it has token
// g as an operand and tokens 2t and 2t + 1 as results. kKind: the kind of the weights, or kAnyKind. kAhead: the steps of 32 columns whose
// loads are under way.
template <int32_t kKind, int kEights, int kAhead>
struct StepTile {
  static constexpr StoredLayout kLayout = stored_layout(kKind == kAnyKind ? TS_W_FLAT8 : kKind);
  static constexpr int32_t kTokens = 8 * kEights, kPart = 32 * kAhead, kParts = static_cast<int32_t>(kStoredGroup) / kPart;

  const TileArgs& args;
  const StoredLayout& layout;
  int32_t g, t;
  StepColumns coming[kAhead];
  StoredSuper super;
  int32_t whole[kEights][2][4];  // [m]: row 4g + 2m for tokens 2t and 2t + 1, then row 4g + 2m + 1
  float totals[kEights][2][4];
  float sums[4];  // for the four rows and the token that this thread folds

  TS_MEMBER_INLINE explicit StepTile(const TileArgs& of)
      : args(of), layout(kKind == kAnyKind ? of.stored : kLayout), g(warp_lane() / 4), t(warp_lane() % 4), sums{0.0f, 0.0f, 0.0f, 0.0f} {}

  // This warp's group at a place. After the last group it is the last one again.
  TS_MEMBER_INLINE int32_t group_at(const StepPlace& place) const {
    const int32_t asked = place.group + warp_index();
    return asked < args.groups ? asked : args.groups - 1;
  }
  TS_MEMBER_INLINE StoredRows rows_at(const StepPlace& place) const {
    const int32_t group = group_at(place), left = args.steps * static_cast<int32_t>(kStep) - group * static_cast<int32_t>(kStoredGroup);
    const int32_t strip = place.strip(args), columns = left > kStoredGroup ? static_cast<int32_t>(kStoredGroup) : left;
    const int64_t panel = int64_t{place.matrix} * args.panels + strip / 2;
    return {layout, args.data + panel * args.panel_bytes + group * layout.group_bytes, columns, strip % 2 * kStepStrip + 4 * g};
  }

  // a: two operands of 32 columns; b: the same columns of eight tokens; column: their first column in the group. x_scales: the scales of a
  // fine kind's activations where something is subtracted in each step; else the pairs have them.
  TS_MEMBER_INLINE void add_columns(int n, const uint32_t (&a)[2][4], const uint32_t (&b)[2], const TilePair* pairs, const float* x_scales,
                                    int32_t column, const float (&scales)[4], const float (&minima)[4]) {
    const bool begins = layout.sub <= 32 || column % layout.sub == 0, ends = layout.sub <= 32 || (column + 32) % layout.sub == 0;
    const Words4 pair = load16(pairs + n * 8);
    float fine[2] = {1.0f, 1.0f};  // the factors of a fine kind's steps, for both tokens
    if (layout.fine != 0 && layout.minimum == 0) fine[0] = float_of(pair.x), fine[1] = float_of(pair.z);
    if (layout.fine != 0 && layout.minimum != 0) fine[0] = x_scales[n * 8], fine[1] = x_scales[n * 8 + 1];
    TS_EVERY_LANE
    for (int m = 0; m < 2; ++m) {
      if (begins) {
        TS_EVERY_LANE
        for (int c = 0; c < 4; ++c) whole[n][m][c] = static_cast<int32_t>(c % 2 == 0 ? pair.y : pair.w);
      }
      mma_unsigned(whole[n][m], a[m], b);
      if (!ends) continue;
      TS_EVERY_LANE
      for (int c = 0; c < 4; ++c) {
        const int r = 2 * m + c / 2;
        const float scale = layout.fine != 0 ? scales[r] * fine[c % 2] : scales[r];
        float total = fma(float_of(static_cast<uint32_t>(whole[n][m][c])) - kRounder, scale, totals[n][m][c]);
        if (layout.minimum != 0) total = fma(minima[r], float_of(c % 2 == 0 ? pair.x : pair.z), total);
        totals[n][m][c] = total;
      }
    }
  }

  // Adds a part of this warp's group, from its column `first` on. It also begins to load as many columns of the
  // rows in `following`, which come next, from column `next` on.
  TS_MEMBER_INLINE void add_part(int32_t first_token, int32_t group, int32_t first, int32_t columns, const StoredRows& following, int32_t next) {
    const int32_t last = args.steps - 1;
    TS_EVERY_LANE
    for (int s = 0; s < kAhead; ++s) {
      // a place in steps of 32 columns
      const int32_t at = first + 32 * s, asked = group * (static_cast<int32_t>(kStoredGroup) / 32) + at / 32;
      const int32_t step = asked / 2 <= last ? asked : 2 * last + 1;
      uint32_t low[4], high[4];
      float scales[2][4], minima[2][4];
      coming[s].codes.unpack(layout, t, low, high);
      coming[s].factors(layout, super, 0, at < columns, scales[0], minima[0]);
      if (layout.sub == 16) coming[s].factors(layout, super, 1, at < columns, scales[1], minima[1]);
      coming[s].load(layout, following, next + 32 * s, t);
      const uint32_t a[2][4] = {{low[0], low[1], high[0], high[1]}, {low[2], low[3], high[2], high[3]}};
      const int8_t* x = args.q + (step / 2 * args.room + first_token + g) * kStep + t * 16 + step % 2 * 8;
      const TilePair* pairs = args.pairs + step * 32 / layout.sub * args.room + first_token + 2 * t;
      const float* x_scales = layout.fine != 0 ? args.x_scales + step * args.room + first_token + 2 * t : nullptr;
      TS_EVERY_LANE
      for (int n = 0; n < kEights; ++n) {
        const Words4 words = load8(x + n * 8 * kStep);
        const uint32_t b[2] = {words.x, words.y};
        if (layout.sub != 16) {
          add_columns(n, a, b, pairs, x_scales, at, scales[0], minima[0]);
          continue;
        }
        const uint32_t front[2] = {t < 2 ? b[0] : 0, t < 2 ? b[1] : 0}, back[2] = {t < 2 ? 0 : b[0], t < 2 ? 0 : b[1]};
        add_columns(n, a, front, pairs, x_scales, at, scales[0], minima[0]);
        add_columns(n, a, back, pairs + args.room, x_scales, at, scales[1], minima[1]);
      }
    }
  }

  // The place of a token's four rows. Places are permuted, so that threads that write together use all banks.
  TS_MEMBER_INLINE static int32_t in_totals(int32_t warp, int32_t token, int32_t quad) {
    return (warp * kTokens + token) * kStepQuads + (quad + token / 2 % 4 * 2) % kStepQuads;
  }

  TS_MEMBER_INLINE void hand_over(float scale) const {
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kEights; ++i) {
      Words4 four;
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) four[r] = bits_of(totals[i / 2][r / 2][r % 2 * 2 + i % 2]);
      step_totals[in_totals(warp_index(), i / 2 * 8 + 2 * t + i % 2, g)] = four;
    }
    if (warp_lane() < kTokens) step_scales[warp_index() * kTokens + warp_lane()] = scale;
  }

  // Folds the groups of all warps, in their order.
  TS_MEMBER_INLINE void fold(const StepPlace& place) {
    const int32_t token = thread_index() / kStepQuads, quad = thread_index() % kStepQuads;
    if (token >= kTokens) return;
    TS_EVERY_LANE
    for (int warp = 0; warp < kStepWarps; ++warp) {
      if (place.group + warp >= args.groups) continue;
      const Words4 four = step_totals[in_totals(warp, token, quad)];
      const float scale = step_scales[warp * kTokens + token];
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) sums[r] = fma(float_of(four[r]), scale, sums[r]);
    }
    if (place.group + kStepWarps < args.groups) return;
    const int64_t row = int64_t{place.strip(args)} * kStepStrip + 4 * quad, of_all = place.token(args, kTokens) + token;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      if (row + r < args.rows && of_all < args.tokens) {
        const float biased = args.bias == nullptr ? sums[r] : sums[r] + args.bias[place.matrix * args.rows + row + r];
        float* out = args.out + of_all * args.out_stride + row + r;
        *out = args.add != 0 ? *out + biased : biased;
      }
      sums[r] = 0.0f;
    }
  }

  TS_MEMBER_INLINE void run() {
    const int32_t units = StepPlace::units(args);
    StepPlace place = {static_cast<int32_t>(block_index()), 0, 0};
    place.find(args, kTokens);
    if (place.unit >= units) return;
    StoredRows rows = rows_at(place);
    super.load(layout, rows);
    TS_EVERY_LANE
    for (int s = 0; s < kAhead; ++s) coming[s].load(layout, rows, 32 * s, t);
    while (place.unit < units) {
      StepPlace following = place;
      following.next(args, kTokens);
      const int32_t group = group_at(place), first_token = place.token(args, kTokens), columns = rows.columns;
      const float scale = layout.fine != 0 ? 1.0f : args.x_scales[group * args.room + first_token + warp_lane() % kTokens];
      TS_EVERY_LANE
      for (int i = 0; i < 8 * kEights; ++i) totals[i / 8][i / 4 % 2][i % 4] = 0.0f;
      StoredSuper super_following = super;
      TS_ONE_BY_ONE
      for (int32_t part = 0; part < kParts; ++part) {
        if (part == kParts - 1) {
          rows = rows_at(following.unit < units ? following : place);
          super_following.load(layout, rows);
        }
        add_part(first_token, group, part * kPart, columns, rows, (part + 1) % kParts * kPart);
      }
      super = super_following;
      hand_over(scale);
      barrier();
      fold(place);
      barrier();
      place = following;
    }
  }
};

// A block computes every args.blocks-th tile.
TS_KERNEL(linear_steps, TileArgs) {
  at_most_threads<kStepThreads>();
  StepTile<kAnyKind, kFewStepTokens / 8, 2>(args).run();
}

#define TS_STEPS(name, kind)                                                        \
  TS_KERNEL(name, TileArgs) {                                                       \
    at_most_threads<2 * kStepThreads>(); /* this many registers let two blocks fit on a multiprocessor */ \
    if (args.wide == 0) StepTile<kind, kFewStepTokens / 8, 4>(args).run();          \
    else StepTile<kind, kStepTokens / 8, 2>(args).run();                            \
  }
TS_STEPS(linear_steps_flat4, TS_W_FLAT4)
TS_STEPS(linear_steps_flat8, TS_W_FLAT8)
TS_STEPS(linear_steps_super4_min, TS_W_SUPER4_MIN)
TS_STEPS(linear_steps_super6, TS_W_SUPER6)
#undef TS_STEPS

}  // namespace cuda
}  // namespace twostroke
