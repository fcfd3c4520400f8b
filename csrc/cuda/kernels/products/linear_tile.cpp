// Products of whole-number weights with many rows of activations, on the matrix units. The sums are those of linear_few, so the bits are
// the same. Weights and activations go through shared memory in stages of 64 columns. A warp has 32 rows of the matrix and some tokens in
// registers.
#include "twostroke/cuda/products/products.h"

namespace twostroke {
namespace cuda {

constexpr int kTileRoom = 3072;  // 16-byte words of all stages
TS_SHARED(Words4, tile_room, kTileRoom);

// The shape of a block. kBank: its tokens are multiplied by one matrix of a bank. A thread is lane 4g + t of its warp. It has columns 16t
// .. 16t + 15 of a stage, and rows 4g .. 4g + 3 of the warp's 32 rows. Of each eight tokens it has token g as an operand and tokens 2t and
// 2t + 1 as results.
template <bool kInt4, bool kBank, int kPanels, int kTokenWarps, int kEights, int kStages>
struct Tile {
  static constexpr int kTokens = kTokenWarps * kEights * 8, kThreads = kPanels * 2 * kTokenWarps * kWarp;
  static constexpr int kPanelWords = (kInt4 ? kInt4StepBytes : kStep * kPanel) / 16, kMultiplierWords = kInt4 ? kMultiplierBytes / 16 : 0;
  static constexpr int kTokenWords = kTokens * kStep / 16, kStageWords = kPanels * kPanelWords + kTokenWords;
  static_assert(kStages * kStageWords <= kTileRoom, "stages fit shared memory");

  const TileArgs& args;
  int32_t g, t, half, token;  // half: which 32 rows of the block's panels; token: the warp's first token in the block
  int32_t first_panel, first_token, matrix;
  int32_t whole[2][kEights][4];  // [m]: row 4g + 2m for tokens 2t and 2t + 1, then row 4g + 2m + 1
  float sums[2][kEights][4];
  struct {  // the factors of the group that ends next; they are loaded when the group before it has ended
    uint64_t scales;
    Words4 pairs[kEights];
  } coming;

  TS_MEMBER_INLINE explicit Tile(const TileArgs& of) : args(of) {
    const int32_t warp = warp_index(), block = static_cast<int32_t>(block_index());
    g = warp_lane() / 4;
    t = warp_lane() % 4;
    half = warp / kTokenWarps;
    token = warp % kTokenWarps * kEights * 8;
    first_panel = block / of.tiles * kPanels;  // blocks that run together share panels
    first_token = block % of.tiles * kTokens;
    matrix = kBank ? of.matrices[block % of.tiles] : 0;
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      whole[i / (4 * kEights)][i / 4 % kEights][i % 4] = 0;
      sums[i / (4 * kEights)][i / 4 % kEights][i % 4] = 0.0f;
    }
  }

  // The place of a panel of this matrix among those of the bank.
  TS_MEMBER_INLINE int64_t in_bank(int32_t of_matrix) const { return kBank ? int64_t{matrix} * args.panels + of_matrix : of_matrix; }

  // Rows of 16-byte words are permuted, so that threads that read together use all banks.
  TS_MEMBER_INLINE static int32_t turned(int32_t word) { return word ^ (word / (kInt4 ? 32 : 64) % 4 * 2); }

  TS_MEMBER_INLINE void copy_stage(int32_t step, int32_t at) const {
    TS_EVERY_LANE
    for (int i = 0; i < (kPanels * kPanelWords + kThreads - 1) / kThreads; ++i) {
      const int32_t word = i * kThreads + thread_index(), panel = word / kPanelWords, inside = word % kPanelWords;
      if (word >= kPanels * kPanelWords) break;
      const bool there = first_panel + panel < args.panels;
      const uint8_t* from = args.data + in_bank(there ? first_panel + panel : 0) * args.panel_bytes + (step * kPanelWords + inside) * int64_t{16};
      const int32_t to = inside < kMultiplierWords ? inside : kMultiplierWords + turned(inside - kMultiplierWords);
      copy_async(tile_room, at + panel * kPanelWords + to, from, there);
    }
    const int8_t* x = args.q + (step * args.room + first_token) * kStep;
    TS_EVERY_LANE
    for (int i = 0; i < (kTokenWords + kThreads - 1) / kThreads; ++i) {
      const int32_t word = i * kThreads + thread_index();
      if (word < kTokenWords) copy_async(tile_room, at + kPanels * kPanelWords + word, x + word * 16, true);
    }
  }

  // Loads the weights of columns 16t + 8s .. 16t + 8s + 7. [m] is an operand.
  TS_MEMBER_INLINE void load_weights(int32_t at, int32_t s, const uint32_t (&multipliers)[4], uint32_t (&a)[2][4]) const {
    const int32_t panel = at + half / 2 * kPanelWords, chunk = half % 2 * 8 + g;
    if (kInt4) {
      const Words4 words = tile_room[panel + kMultiplierWords + turned((2 * t + s) * 16 + chunk)];
      const uint32_t four[4] = {words.x, words.y, words.z, words.w};
      TS_EVERY_LANE
      for (int row = 0; row < 4; ++row) {
        a[row / 2][row % 2] = unpacked(four[row] & 0x0f0f0f0fu, multipliers[row]);
        a[row / 2][2 + row % 2] = unpacked(four[row] >> 4 & 0x0f0f0f0fu, multipliers[row]);
      }
    } else {
      const Words4 low = tile_room[panel + turned((4 * t + 2 * s) * 16 + chunk)], high = tile_room[panel + turned((4 * t + 2 * s + 1) * 16 + chunk)];
      const uint32_t four[4] = {low.x, low.y, low.z, low.w}, next[4] = {high.x, high.y, high.z, high.w};
      TS_EVERY_LANE
      for (int row = 0; row < 4; ++row) {
        a[row / 2][row % 2] = four[row];
        a[row / 2][2 + row % 2] = next[row];
      }
    }
  }

  // The stored multipliers of a thread's 16 columns, for each of its rows.
  TS_MEMBER_INLINE void load_multipliers(int32_t at, uint32_t (&multipliers)[4]) const {
    if (!kInt4) return;
    const Words4 words = tile_room[at + half / 2 * kPanelWords + t / 2 * 4 + half % 2 * 2 + g / 4];
    const uint32_t low = g % 2 == 0 ? words.x : words.y, high = g % 2 == 0 ? words.z : words.w, four = (g % 4 < 2 ? low : high) >> (t % 2 * 4);
    TS_EVERY_LANE
    for (int row = 0; row < 4; ++row) multipliers[row] = four >> (8 * row) & 15;
  }

  TS_MEMBER_INLINE void multiply(int32_t at) {
    uint32_t multipliers[4], a[2][2][4];
    load_multipliers(at, multipliers);
    load_weights(at, 0, multipliers, a[0]);
    load_weights(at, 1, multipliers, a[1]);
    const int32_t x = at + kPanels * kPanelWords + (token + g) * 4 + t;
    TS_EVERY_LANE
    for (int n = 0; n < kEights; ++n) {
      const Words4 words = tile_room[x + n * 32];
      const uint32_t b[2][2] = {{words.x, words.y}, {words.z, words.w}};
      TS_EVERY_LANE
      for (int i = 0; i < 4; ++i) mma_unsigned(whole[i % 2][n], a[i / 2][i % 2], b[i / 2]);
    }
  }

  template <bool kSmall>
  TS_MEMBER_INLINE void add_group() {
    const float scales[4] = {widen(static_cast<uint16_t>(coming.scales)), widen(static_cast<uint16_t>(coming.scales >> 16)),
                             widen(static_cast<uint16_t>(coming.scales >> 32)), widen(static_cast<uint16_t>(coming.scales >> 48))};
    const Words4(&pairs)[kEights] = coming.pairs;
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      const int m = i / 4 % 2, n = i / 8, c = i % 4;
      const uint32_t bits = static_cast<uint32_t>(whole[m][n][c]) + (c % 2 == 0 ? pairs[n].y : pairs[n].w);
      const float value = kSmall ? float_of(bits) - kRounder : static_cast<float>(static_cast<int32_t>(bits));
      const float scale = float_of(c % 2 == 0 ? pairs[n].x : pairs[n].z) * scales[2 * m + c / 2];
      sums[m][n][c] = fma(value, scale, sums[m][n][c]);
      whole[m][n][c] = 0;
    }
  }

  TS_MEMBER_INLINE int32_t panel() const { return first_panel + half / 2; }

  // Loads the factors of the warp's tokens and rows in a group. After the last group these are the last group's, and for a missing panel
  // they are the first panel's.
  TS_MEMBER_INLINE void load_factors(int32_t asked) {
    const int32_t group = asked < args.groups ? asked : args.groups - 1;
    const int64_t there = in_bank(panel() < args.panels ? panel() : 0);
    coming.scales = *reinterpret_cast<const uint64_t*>(args.scales + (there * args.groups + group) * kPanel + half % 2 * 32 + 4 * g);
    TS_EVERY_LANE
    for (int n = 0; n < kEights; ++n) coming.pairs[n] = load16(args.pairs + group * args.room + first_token + token + 2 * t + n * 8);
  }

  TS_MEMBER_INLINE void store() const {
    const int64_t row = panel() * kPanel + half % 2 * 32 + 4 * g;
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      const int n = i / 8, c = i / 4 % 2, r = i % 4;  // a token's four rows one after the other
      const int64_t of_token = first_token + token + n * 8 + 2 * t + c;
      if (row + r >= args.rows || of_token >= args.tokens) continue;
      const float sum = sums[r / 2][n][r % 2 * 2 + c], biased = args.bias == nullptr ? sum : sum + args.bias[(kBank ? matrix * args.rows : 0) + row + r];
      float* out = args.out + of_token * args.out_stride + row + r;
      *out = args.add != 0 ? *out + biased : biased;
    }
  }

  TS_MEMBER_INLINE void run() {
    if (kBank && matrix < 0) return;  // a tile without tokens
    const int32_t group_steps = args.group / kStep;
    for (int32_t i = 0; i < kStages - 1; ++i) {
      if (i < args.steps) copy_stage(i, i * kStageWords);
      commit_copies();
    }
    load_factors(0);
    int32_t slot = 0, left = group_steps, group = 0;
    for (int32_t step = 0; step < args.steps; ++step) {
      wait_copies<kStages - 2>();
      barrier();
      const int32_t free_slot = slot == 0 ? kStages - 1 : slot - 1;
      if (step + kStages - 1 < args.steps) copy_stage(step + kStages - 1, free_slot * kStageWords);
      commit_copies();
      multiply(slot * kStageWords);
      if (--left == 0 || step + 1 == args.steps) {
        if (args.small != 0) add_group<true>();
        else add_group<false>();
        left = group_steps;
        load_factors(++group);
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    store();
  }
};

template <class T>
TS_DEVICE_INLINE void run_tile(const TileArgs& args) {
  // this many registers let two blocks fit on a multiprocessor: one multiplies while the other one waits or folds
  at_most_threads<2 * T::kThreads>();
  T(args).run();
}

typedef Tile<false, false, 1, 4, 4, 4> TileInt8;
typedef Tile<true, false, 1, 4, 4, 4> TileInt4;
typedef Tile<false, false, 1, 4, 2, 6> NarrowInt8;
typedef Tile<true, false, 1, 4, 2, 7> NarrowInt4;
typedef Tile<false, true, 1, 4, 2, 6> BankInt8;
typedef Tile<true, true, 1, 4, 2, 7> BankInt4;
static_assert(TileInt8::kTokens == kTileTokens && TileInt8::kThreads == kTileThreads, "as started");
static_assert(NarrowInt8::kTokens == kNarrowTokens && NarrowInt8::kThreads == kNarrowTileThreads, "as started");

TS_KERNEL(linear_tile_int8, TileArgs) { run_tile<TileInt8>(args); }
TS_KERNEL(linear_tile_int4, TileArgs) { run_tile<TileInt4>(args); }
TS_KERNEL(linear_narrow_int8, TileArgs) { run_tile<NarrowInt8>(args); }
TS_KERNEL(linear_narrow_int4, TileArgs) { run_tile<NarrowInt4>(args); }
TS_KERNEL(linear_bank_int8, TileArgs) { run_tile<BankInt8>(args); }
TS_KERNEL(linear_bank_int4, TileArgs) { run_tile<BankInt4>(args); }

}  // namespace cuda
}  // namespace twostroke
