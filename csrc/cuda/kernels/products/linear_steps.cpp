// Products of weights that keep a file's codes with many rows of activations, on the matrix units: the sums of linear_stored, so the same
// bits. Activations go through shared memory in stages of 64 columns, codes straight into registers.
// Knows: packed panels, the layout of quantize_steps. Must not know: what asked.
#include "twostroke/cuda/products.h"
#include "twostroke/cuda/stored_rows.h"

namespace twostroke {
namespace cuda {

// A block one panel and 64 tokens, a warp 32 rows and 16 tokens. A thread is lane 4g + t: of 32 columns it has 8t .. 8t + 7, rows
// 4g .. 4g + 3, and of each eight tokens number g as an operand, 2t and 2t + 1 as results.
struct StepTile {
  static constexpr int kEights = 2, kTokenWarps = 4, kWords = kStepTokens * kStep / 16;  // kWords: 16-byte words of a stage
  static constexpr int kStages = kTileRoom / kWords < 8 ? kTileRoom / kWords : 8;

  const TileArgs& args;
  int32_t g, t, row, token;  // row: the first of four, in the panel; token: the first of the warp, in the block
  int32_t panel, first_token, matrix;
  int32_t whole[2][kEights][4];  // [m]: rows 4g + 2m, of tokens 2t and 2t + 1, then row 4g + 2m + 1
  float totals[2][kEights][4], sums[2][kEights][4];

  TS_MEMBER_INLINE explicit StepTile(const TileArgs& of) : args(of) {
    const int32_t warp = warp_index(), block = static_cast<int32_t>(block_index());
    g = warp_lane() / 4;
    t = warp_lane() % 4;
    row = warp / kTokenWarps * 32 + 4 * g;
    token = warp % kTokenWarps * kEights * 8;
    panel = block / of.tiles;
    first_token = block % of.tiles * kStepTokens;
    matrix = of.matrices == nullptr ? 0 : of.matrices[block % of.tiles];
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      whole[i / 4 % 2][i / 8][i % 4] = 0;
      totals[i / 4 % 2][i / 8][i % 4] = 0.0f;
      sums[i / 4 % 2][i / 8][i % 4] = 0.0f;
    }
  }

  TS_MEMBER_INLINE void copy_stage(int32_t step) const {
    static_assert(kWords == kStepThreads, "a thread copies one word");
    const int32_t word = thread_index();
    copy_async(tile_room, step % kStages * kWords + word, args.q + (step * args.room + first_token) * kStep + word * 16, true);
  }

  // a: two operands; b: of each eight tokens.
  TS_MEMBER_INLINE void multiply(const uint32_t (&a)[2][4], const uint32_t (&b)[kEights][2]) {
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kEights; ++i) mma_unsigned(whole[i % 2][i / 2], a[i % 2], b[i / 2]);
  }

  // step: of the group; column: where it begins.
  TS_MEMBER_INLINE void add_step(const StoredRows& weights, int64_t step, int64_t column) {
    float scales[4], minima[4];
    weights.steps(step, scales);
    if (args.stored.minimum != 0) weights.minimums(step, minima);
    const TilePair* pairs = args.pairs + column / args.stored.sub * args.room + first_token + token + 2 * t;
    TS_EVERY_LANE
    for (int n = 0; n < kEights; ++n) {
      const Words4 words = load16(pairs + n * 8);
      TS_EVERY_LANE
      for (int i = 0; i < 8; ++i) {
        const int m = i / 4, c = i % 4, r = 2 * m + c / 2;
        const float value = float_of(static_cast<uint32_t>(whole[m][n][c]) + (c % 2 == 0 ? words.y : words.w)) - kRounder;
        float total = fma(value, scales[r], totals[m][n][c]);
        if (args.stored.minimum != 0) total = fma(0.0f - minima[r], float_of(c % 2 == 0 ? words.x : words.z), total);
        totals[m][n][c] = total;
        whole[m][n][c] = 0;
      }
    }
  }

  TS_MEMBER_INLINE void add_group(int64_t group) {
    const float* scales = args.x_scales + group * args.room + first_token + token + 2 * t;
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      const int m = i / 4 % 2, n = i / 8, c = i % 4;
      sums[m][n][c] = fma(totals[m][n][c], scales[n * 8 + c % 2], sums[m][n][c]);
      totals[m][n][c] = 0.0f;
    }
  }

  // Columns k .. k + 31 of a group that begins at column `first`. b: this thread's operands of these columns.
  TS_MEMBER_INLINE void add_columns(const StoredRows& weights, int64_t first, int64_t k, const uint32_t (&b)[kEights][2]) {
    uint32_t low[4], high[4];
    weights.eight(k + 8 * t, low, high);
    const uint32_t a[2][4] = {{low[0], low[1], high[0], high[1]}, {low[2], low[3], high[2], high[3]}};
    const int64_t sub = args.stored.sub;
    if (sub == 16) {  // half of the columns at a time
      TS_EVERY_LANE
      for (int half = 0; half < 2; ++half) {
        uint32_t some[kEights][2];
        TS_EVERY_LANE
        for (int i = 0; i < 2 * kEights; ++i) some[i / 2][i % 2] = t / 2 == half ? b[i / 2][i % 2] : 0;
        multiply(a, some);
        add_step(weights, k / 16 + half, first + k + 16 * half);
      }
      return;
    }
    multiply(a, b);
    if ((k + 32) % sub == 0) add_step(weights, k / sub, first + k / sub * sub);
  }

  TS_MEMBER_INLINE void add_stage(const StoredRows& weights, int32_t step, int64_t first) {
    Words4 words[kEights];
    TS_EVERY_LANE
    for (int n = 0; n < kEights; ++n) words[n] = tile_room[step % kStages * kWords + (token + n * 8 + g) * 4 + t];
    const int64_t k = step * kStep - first;
    const uint32_t low[kEights][2] = {{words[0].x, words[0].y}, {words[1].x, words[1].y}};
    const uint32_t high[kEights][2] = {{words[0].z, words[0].w}, {words[1].z, words[1].w}};
    add_columns(weights, first, k, low);
    add_columns(weights, first, k + 32, high);
  }

  TS_MEMBER_INLINE void store() const {
    const int64_t first = panel * kPanel + row;
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kEights; ++i) {
      const int n = i / 8, c = i / 4 % 2, r = i % 4;  // a token's four rows one after the other
      const int64_t of_token = first_token + token + n * 8 + 2 * t + c;
      if (first + r >= args.rows || of_token >= args.tokens) continue;
      const float sum = sums[r / 2][n][r % 2 * 2 + c], biased = args.bias == nullptr ? sum : sum + args.bias[matrix * args.rows + first + r];
      float* out = args.out + of_token * args.out_stride + first + r;
      *out = args.add != 0 ? *out + biased : biased;
    }
  }

  TS_MEMBER_INLINE void run() {
    if (matrix < 0) return;  // a tile that no token fills
    for (int32_t i = 0; i < kStages - 1; ++i) {
      if (i < args.steps) copy_stage(i);
      commit_copies();
    }
    const uint8_t* data = args.data + (int64_t{matrix} * args.panels + panel) * args.panel_bytes;
    constexpr int32_t kSteps = kStoredGroup / kStep;
    for (int32_t group = 0; group < args.groups; ++group) {
      const int32_t from = group * kSteps, left = args.steps - from, steps = left < kSteps ? left : kSteps;
      const StoredRows weights(args.stored, data + group * args.stored.group_bytes, steps * kStep, row);
      for (int32_t step = from; step < from + steps; ++step) {
        wait_copies<kStages - 2>();
        barrier();
        if (step + kStages - 1 < args.steps) copy_stage(step + kStages - 1);
        commit_copies();
        add_stage(weights, step, group * kStoredGroup);
      }
      add_group(group);
    }
    store();
  }
};

TS_KERNEL(linear_steps, TileArgs) {
  at_most_threads<kStepThreads>();
  StepTile(args).run();
}

}  // namespace cuda
}  // namespace twostroke
