// Products of int8 and int4 weights with the rows of a prompt, on devices of compute capability 9.0. The sums are those of linear_tile, so
// the bits are the same. A block has two warpgroups. Each multiplies one panel by the block's tokens, 64 tokens and a group of 128 columns
// at a time. Weights go from memory to registers, one group ahead; activations come as bulk copies into shared memory, for both warpgroups.
// While a product is computed, the warpgroup folds the one before it.
#include "twostroke/cuda/machine/bulk.h"
#include "twostroke/cuda/products/products.h"

namespace twostroke {
namespace cuda {

#if TS_HAS_WARPGROUPS

constexpr int32_t kProductStages = 5, kScaleWords = kProductRows / 4;
constexpr int32_t kProductWarps = 2 * kGroupWarps;  // warps that multiply; a third warpgroup has a thread that copies
constexpr int kRegistersToMultiply = 240, kRegistersToCopy = 24;  // at the beginning all have 168
constexpr int32_t kStageBytes = (kProductWords + kScaleWords) * 16;

TS_SHARED_KILOBYTES(Words4, product_room, kProductStages * kProductWords);
TS_SHARED(Words4, product_scales, kProductStages * kScaleWords);
TS_SIGNALS(product_full, kProductStages);
TS_SIGNALS(product_empty, kProductStages);

// A thread's weights of kHalves times 128 columns, which are a group. With g = lane / 4, t = lane % 4 and w the warp's number in its
// warpgroup, it has rows 16w + 2g and 16w + 2g + 1 of the panel, and of each 32 columns the columns 8t .. 8t + 7: quantize_prompt puts
// columns 8t + 4h .. 8t + 4h + 3 to the places 16h + 4t .. 16h + 4t + 3. Steps of 64 columns after the last one are that one; their
// activations are zeros.
template <int kHalves>
struct PromptInt8 {
  Words2 words[kHalves][8];

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t group, int32_t steps, int32_t row) {
    TS_EVERY_LANE
    for (int step = 0; step < 2 * kHalves; ++step) {
      const int32_t asked = group * 2 * kHalves + step, there = asked < steps ? asked : steps - 1;
      const uint8_t* from = panel + ((there * 16 + warp_lane() % 4 * 2) * static_cast<int32_t>(kPanel) + row) * int64_t{4};
      TS_EVERY_LANE
      for (int i = 0; i < 4; ++i) words[step / 2][step % 2 * 4 + i] = load_once8(from + (i / 2 * 8 + i % 2) * kPanel * 4);
    }
  }
  TS_MEMBER_INLINE void unpack(uint32_t (&a)[kHalves][16]) const {
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kHalves; ++i) {
      a[i / 8][i % 8 * 2] = words[i / 8][i % 8].x ^ 0x80808080u;
      a[i / 8][i % 8 * 2 + 1] = words[i / 8][i % 8].y ^ 0x80808080u;
    }
  }
};

template <int kHalves>
struct PromptInt4 {
  Words2 words[kHalves][4];
  uint32_t multipliers[kHalves][4];  // a byte for each of two rows, one half of which belongs to the columns

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t group, int32_t steps, int32_t row) {
    TS_EVERY_LANE
    for (int step = 0; step < 2 * kHalves; ++step) {
      const int32_t asked = group * 2 * kHalves + step, there = asked < steps ? asked : steps - 1;
      const uint8_t* from = panel + int64_t{there} * kInt4StepBytes;
      TS_EVERY_LANE
      for (int i = 0; i < 2; ++i) {
        words[step / 2][step % 2 * 2 + i] = load_once8(from + kMultiplierBytes + ((i * 4 + warp_lane() % 4) * kPanel + row) * 4);
        multipliers[step / 2][step % 2 * 2 + i] = *reinterpret_cast<const uint16_t*>(from + i * kPanel + row);
      }
    }
  }
  TS_MEMBER_INLINE void unpack(uint32_t (&a)[kHalves][16]) const {
    TS_EVERY_LANE
    for (int i = 0; i < 8 * kHalves; ++i) {
      const Words2 both = words[i / 8][i % 8 / 2];
      const uint32_t word = i % 2 == 0 ? both.x : both.y;
      const uint32_t multiplier = multipliers[i / 8][i % 8 / 2] >> (i % 2 * 8 + warp_lane() / 2 % 2 * 4) & 15;
      a[i / 8][i % 8 / 2 * 4 + i % 2] = unpacked(word & 0x0f0f0f0fu, multiplier) ^ 0x80808080u;
      a[i / 8][i % 8 / 2 * 4 + 2 + i % 2] = unpacked(word >> 4 & 0x0f0f0f0fu, multiplier) ^ 0x80808080u;
    }
  }
};

struct StagePlace {
  int32_t stage;
  uint32_t parity;

  TS_MEMBER_INLINE void next() {
    if (++stage < kProductStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// The shape of a block: kHalves times 128 columns of a group, kParts times 64 tokens.
template <class Weights, int kHalves, int kParts>
struct PromptTile {
  const TileArgs& args;
  int32_t row, panel, first_part;  // row: the thread's first row in its panel
  float sums[kParts][32];
  Weights coming;
  uint32_t a[kHalves][16], coming_scales, next_scales;

  TS_MEMBER_INLINE explicit PromptTile(const TileArgs& of) : args(of) {
    const int32_t block = static_cast<int32_t>(block_index()), warp = warp_index();
    row = warp % kGroupWarps * 16 + warp_lane() / 4 * 2;
    // blocks that run together share panels
    panel = of.gated != 0 ? block / of.tiles + warp / kGroupWarps * (of.panels / 2) : block / of.tiles * 2 + warp / kGroupWarps;
    first_part = block % of.tiles * kParts;
    TS_EVERY_LANE
    for (int i = 0; i < 32 * kParts; ++i) sums[i / 32][i % 32] = 0.0f;
  }

  // Loads the weights and their scales of a group. After the last group these are the last group's, and for a missing panel they are the
  // first panel's.
  TS_MEMBER_INLINE void load(int32_t asked) {
    const int32_t group = asked < args.groups ? asked : args.groups - 1;
    const int64_t there = panel < args.panels ? panel : 0;
    coming.load(args.data + there * args.panel_bytes, group, args.steps, row);
    coming_scales = *reinterpret_cast<const uint32_t*>(args.scales + (there * args.groups + group) * kPanel + row);
  }

  // Copies the activations of all products, each as soon as its stage is free. A part after the last one has the first one's rows.
  TS_MEMBER_INLINE void copy_all() const {
    const int32_t all = static_cast<int32_t>(args.room / kProductRows);
    StagePlace at = {0, 1};  // at first each stage is free
    TS_ONE_BY_ONE
    for (int32_t group = 0; group < args.groups; ++group) {
      TS_ONE_BY_ONE
      for (int32_t i = 0; i < kParts * kHalves; ++i) {
        const int32_t asked = first_part + i / kHalves, part = asked < all ? asked : 0;
        const int8_t* q = args.q + (int64_t{group * kHalves + i % kHalves} * all + part) * kProductWords * 16;
        wait_signal(product_empty, at.stage, at.parity);
        arrive_expecting(product_full, at.stage, kStageBytes);
        copy_bulk(product_room, at.stage * kProductWords, q, kProductWords * 16, product_full, at.stage);
        const float* x_scales = args.x_scales + (int64_t{group} * all + part) * kProductRows;
        copy_bulk(product_scales, at.stage * kScaleWords, x_scales, kScaleWords * 16, product_full, at.stage);
        at.next();
      }
    }
  }

  // Adds the sums of a product, which are those of the thread's two rows and of tokens 16t .. 16t + 15 of a part.
  TS_MEMBER_INLINE void add_product(float (&to)[32], const int32_t (&whole)[32], int32_t stage, const float (&scales)[2]) const {
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const Words4 x_scales = product_scales[stage * kScaleWords + warp_lane() % 4 * 4 + i];
      TS_EVERY_LANE
      for (int j = 8 * i; j < 8 * i + 8; ++j)
        to[j] = fma(static_cast<float>(whole[j]), float_of(x_scales[j / 4 % 2 * 2 + j % 2]) * scales[j / 2 % 2], to[j]);
    }
  }

  // Begins a group's product, whose activations are in kHalves stages. Returns the last stage.
  TS_MEMBER_INLINE int32_t begin(int32_t (&whole)[32], StagePlace& at) const {
    StagePlace place = at;
    TS_EVERY_LANE
    for (int half = 0; half < kHalves; ++half) {
      wait_signal(product_full, place.stage, place.parity);
      place.next();
    }
    begin_product<false>(whole, a[0], product_room, at.stage * kProductWords);
    for (int half = 1; half < kHalves; ++half) {
      at.next();
      begin_product<true>(whole, a[half], product_room, at.stage * kProductWords);
    }
    const int32_t last = at.stage;
    at.next();
    return last;
  }

  // Ends it, and frees the stages before the last one, which still has the factors of the tokens.
  TS_MEMBER_INLINE void end(int32_t (&whole)[32], int32_t last) const {
    end_product(whole);
    TS_EVERY_LANE
    for (int half = 0; half < kHalves; ++half) keep_operands(a[half]);
    if (kHalves > 1 && warp_lane() == 0) arrive(product_empty, last == 0 ? kProductStages - 1 : last - 1);
  }

  TS_MEMBER_INLINE void next_group(int32_t group) {
    coming.unpack(a);
    next_scales = coming_scales;
    load(group + 1);
  }

  TS_MEMBER_INLINE void widen_scales(float (&scales)[2]) const {
    scales[0] = widen(static_cast<uint16_t>(next_scales));
    scales[1] = widen(static_cast<uint16_t>(next_scales >> 16));
  }

  // While a product is computed, the sums of the one before it are added. kTogether groups have an even number of products, so that each
  // product's sums have registers of their own. At the very first product zeros are added.
  TS_MEMBER_INLINE void multiply_all() {
    constexpr int kTogether = kParts % 2 + 1;
    int32_t whole[2][32] = {}, before = -1;
    StagePlace at = {0, 0};
    float scales[2] = {0.0f, 0.0f};
    TS_ONE_BY_ONE
    for (int32_t first = 0; first < args.groups; first += kTogether) {
      TS_EVERY_LANE
      for (int i = 0; i < kTogether * kParts; ++i) {
        const int32_t group = first + i / kParts;
        if (group >= args.groups) continue;
        if (i % kParts == 0) next_group(group);
        const int32_t last = begin(whole[i % 2], at);
        add_product(sums[(i + kParts - 1) % kParts], whole[1 - i % 2], before < 0 ? last : before, scales);
        if (i % kParts == 0) widen_scales(scales);
        end(whole[i % 2], last);
        if (warp_lane() == 0 && before >= 0) arrive(product_empty, before);
        if (i == 0 && before < 0) {  // so far this is 0, or NaN where the factor of a token is not finite
          TS_EVERY_LANE
          for (int j = 0; j < 32; ++j) sums[kParts - 1][j] = 0.0f;
        }
        before = last;
      }
    }
    const bool second = kTogether == 1 || args.groups % 2 == 0;  // which registers have the last sums
    if (second) add_product(sums[kParts - 1], whole[1], before, scales);
    else add_product(sums[kParts - 1], whole[0], before, scales);
  }

  // The row of the whole result that belongs to the thread's first row.
  TS_MEMBER_INLINE int64_t out_row() const { return (args.gated != 0 ? panel % (args.panels / 2) : panel) * kPanel + row; }

  TS_MEMBER_INLINE bool has_pairs() const { return args.out_stride % 2 == 0 && reinterpret_cast<uint64_t>(args.out) % 8 == 0; }

  // The bias of the thread's two rows, or zeros.
  TS_MEMBER_INLINE void load_bias(float (&bias)[2]) const {
    TS_EVERY_LANE
    for (int r = 0; r < 2; ++r) bias[r] = args.bias != nullptr && panel * kPanel + row + r < args.rows ? args.bias[panel * kPanel + row + r] : 0.0f;
  }

  // Returns the place of sum i of a token's first row; the sum of its second row is two places later.
  TS_MEMBER_INLINE static int of_token(int i) { return i / 2 * 4 + i % 2; }

  TS_MEMBER_INLINE float biased(float sum, float bias) const { return args.bias == nullptr ? sum : sum + bias; }

  TS_MEMBER_INLINE void store_two(int64_t token, const float (&two)[2], int64_t rows) const {
    typedef float Pair __attribute__((ext_vector_type(2)));
    const int64_t first = out_row();
    if (token >= args.tokens || first >= rows) return;
    float* out = args.out + token * args.out_stride + first;
    if (has_pairs() && first + 1 < rows) {
      Pair* to = reinterpret_cast<Pair*>(out);
      const Pair before = args.add != 0 ? *to : Pair{0.0f, 0.0f};
      *to = args.add != 0 ? Pair{before.x + two[0], before.y + two[1]} : Pair{two[0], two[1]};
      return;
    }
    out[0] = args.add != 0 ? out[0] + two[0] : two[0];
    if (first + 1 < rows) out[1] = args.add != 0 ? out[1] + two[1] : two[1];
  }

  TS_MEMBER_INLINE void store() const {
    float bias[2];
    load_bias(bias);
    TS_EVERY_LANE
    for (int part = 0; part < kParts; ++part) {
      TS_EVERY_LANE
      for (int i = 0; i < 16; ++i) {
        const int64_t token = (first_part + part) * kProductRows + warp_lane() % 4 * 16 + i;
        store_two(token, {biased(sums[part][of_token(i)], bias[0]), biased(sums[part][of_token(i) + 2], bias[1])}, args.rows);
      }
    }
  }

  // The first warpgroup has the gates, and the second one what they multiply. Both put a part's sums to shared memory, and each finishes
  // half of them.
  TS_MEMBER_INLINE void store_gated() const {
    const int32_t own = thread_index() % kGroupSize, half = thread_index() / kGroupSize;
    float bias[2];
    load_bias(bias);
    TS_EVERY_LANE
    for (int part = 0; part < kParts; ++part) {
      barrier();  // after this, both have read the earlier contents
      TS_EVERY_LANE
      for (int i = 0; i < 8; ++i) {
        Words4 four;
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) four[j] = bits_of(biased(sums[part][4 * i + j], bias[j / 2]));
        product_room[(half * 8 + i) * kGroupSize + own] = four;
      }
      barrier();
      TS_ONE_BY_ONE
      for (int32_t i = half * 4; i < half * 4 + 4; ++i) {
        const Words4 gates = product_room[i * kGroupSize + own], values = product_room[(8 + i) * kGroupSize + own];
        float four[4];
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) four[j] = activated(0, float_of(gates[j])) * float_of(values[j]);
        const int64_t token = (first_part + part) * kProductRows + warp_lane() % 4 * 16 + 2 * i;
        store_two(token, {four[0], four[2]}, args.rows / 2);
        store_two(token + 1, {four[1], four[3]}, args.rows / 2);
      }
    }
  }

  TS_MEMBER_INLINE void run() {
    if (thread_index() == 0) {
      for (int32_t i = 0; i < kProductStages; ++i) {
        begin_signal(product_full, i, 1);
        begin_signal(product_empty, i, kProductWarps);
      }
      end_signals();
    }
    barrier();
    if (warp_index() >= kProductWarps) {
      give_registers<kRegistersToCopy>();
      wait_for_earlier();
      if (thread_index() == kProductWarps * kWarp) copy_all();
      if (args.gated == 0) return;
      for (int32_t i = 0; i < 2 * kParts; ++i) barrier();
      return;
    }
    take_registers<kRegistersToMultiply>();
    load(0);
    wait_for_earlier();
    multiply_all();
    if (args.gated != 0) store_gated();
    else store();
  }
};

// Each shape is a kernel of its own, so that the assembler counts its registers alone.
template <template <int> class Weights, int kHalves, int kParts>
TS_DEVICE_INLINE void run_prompt(const TileArgs& args) {
  at_most_threads<kPromptTileThreads>();
  PromptTile<Weights<kHalves>, kHalves, kParts>(args).run();
}

TS_KERNEL_AHEAD(linear_prompt_int8_1x2, TileArgs) { run_prompt<PromptInt8, 1, 2>(args); }
TS_KERNEL_AHEAD(linear_prompt_int8_1x3, TileArgs) { run_prompt<PromptInt8, 1, 3>(args); }
TS_KERNEL_AHEAD(linear_prompt_int8_2x2, TileArgs) { run_prompt<PromptInt8, 2, 2>(args); }
TS_KERNEL_AHEAD(linear_prompt_int8_2x3, TileArgs) { run_prompt<PromptInt8, 2, 3>(args); }
TS_KERNEL_AHEAD(linear_prompt_int4_1x2, TileArgs) { run_prompt<PromptInt4, 1, 2>(args); }
TS_KERNEL_AHEAD(linear_prompt_int4_1x3, TileArgs) { run_prompt<PromptInt4, 1, 3>(args); }
TS_KERNEL_AHEAD(linear_prompt_int4_2x2, TileArgs) { run_prompt<PromptInt4, 2, 2>(args); }
TS_KERNEL_AHEAD(linear_prompt_int4_2x3, TileArgs) { run_prompt<PromptInt4, 2, 3>(args); }

#else

TS_KERNEL(linear_prompt_int8_1x2, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int8_1x3, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int8_2x2, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int8_2x3, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int4_1x2, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int4_1x3, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int4_2x2, TileArgs) { static_cast<void>(args); }
TS_KERNEL(linear_prompt_int4_2x3, TileArgs) { static_cast<void>(args); }

#endif

}  // namespace cuda
}  // namespace twostroke
