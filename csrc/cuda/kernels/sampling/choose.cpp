// sample_choose: chooses the token of each row that draws one. A block has one row. In the order of token numbers, the first token is
// chosen at which the running sum of weights exceeds the drawn share of the whole sum.
#include "best.h"
#include "twostroke/cuda/machine/search.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

TS_SHARED(uint64_t, list_weights, kMostListed);

// A row that draws, as a block sees it.
struct Drawn {
  const SampleRow& asked;
  const float* logits;
  int64_t count;
  const uint64_t* sums;  // sums of the weights of its parts
  int64_t parts;
  Choice choice;
  Weights weights;
  uint64_t least, last;  // least: the smallest weight that min-p keeps; last: the smallest key that top-p keeps, where top-k keeps all

  TS_MEMBER_INLINE uint64_t likely(uint64_t weight) const { return weight >= least ? weight : 0; }
  // The drawn share of the sum of weights.
  TS_MEMBER_INLINE uint64_t target(uint64_t own) const { return share_down(asked.draw, block_sum(own)) + 1; }
  // The share of the sum of weights that top-p keeps.
  TS_MEMBER_INLINE uint64_t share(uint64_t own) const { return share_of(asked, block_sum(own)); }
  TS_MEMBER_INLINE uint64_t sum_of_parts() const {
    uint64_t sum = 0;
    TS_ONE_BY_ONE
    for (int64_t i = thread_index(); i < parts; i += kThreads) sum += sums[i];
    return sum;
  }
};

// Draws from all tokens that min-p, and top-p without top-k, keep. The sums of their parts are known.
TS_DEVICE_INLINE uint64_t draw_from_all(const Drawn& row) {
  const Reached part = reach(row.parts, row.target(row.sum_of_parts()), [&](int64_t i) { return row.sums[i]; });
  const int64_t first = part.place * kThreads * kPartTokens, rest = row.count - first;
  const auto likely = [&](int64_t i) {
    const float logit = row.logits[first + i];
    return key_of(rank_of(logit), first + i) >= row.last ? row.likely(row.weights.of(logit)) : 0;
  };
  return static_cast<uint64_t>(first + reach(rest < kThreads * kPartTokens ? rest : kThreads * kPartTokens, part.left, likely).place);
}

// Draws from the whole row, where the list is too short for top-k.
TS_DEVICE_INLINE uint64_t draw_from_row(const Drawn& row) {
  // Tokens with a smaller key are left out.
  uint64_t last = find_key(row.logits, row.count, static_cast<uint64_t>(row.asked.top_k), rank_of, [](float) { return uint64_t{1}; });
  const auto kept = [&](int64_t token, float logit) { return key_of(rank_of(logit), token) >= last ? row.weights.of(logit) : 0; };
  if (row.choice.share) {
    uint64_t sum = 0;
    over_row(row.logits, row.count, [&](int64_t token, float logit) { sum += kept(token, logit); });
    // Tokens that top-k leaves out come after all others, and the share is reached before them.
    last = find_key(row.logits, row.count, row.share(sum), rank_of, [&](float logit) { return row.weights.of(logit); });
  }
  uint64_t sum = 0;
  over_row(row.logits, row.count, [&](int64_t token, float logit) { sum += row.likely(kept(token, logit)); });
  const auto likely = [&](int64_t i) { return row.likely(kept(i, row.logits[i])); };
  return static_cast<uint64_t>(reach(row.count, row.target(sum), likely).place);
}

// Draws from the `found` likeliest tokens, whose keys are in `room`. It takes top_k of them, or all that have a weight.
TS_DEVICE_INLINE uint64_t draw_from_list(const Drawn& row, int32_t found) {
  const int32_t thread = thread_index();
  sort_room(found);
  TS_ONE_BY_ONE
  for (int32_t i = thread; i < found; i += kThreads) list_weights[i] = row.weights.of(logit_in(room_at(i)));
  int32_t kept = row.asked.top_k < found ? row.asked.top_k : found;
  if (row.choice.share) {
    uint64_t sum = 0;
    TS_ONE_BY_ONE
    for (int32_t i = thread; i < kept; i += kThreads) sum += list_weights[i];
    kept = static_cast<int32_t>(reach(kept, row.share(sum), [](int64_t i) { return static_cast<uint64_t>(list_weights[i]); }).place) + 1;
  }
  uint64_t sum = 0;
  TS_ONE_BY_ONE
  for (int32_t i = thread; i < kept; i += kThreads) {
    sum += row.likely(list_weights[i]);
    put_room(i, room_at(i) << 32 | static_cast<uint64_t>(i));  // falling order is now the order of rising numbers
  }
  const uint64_t target = row.target(sum);
  sort_room(kept);
  const auto likely = [&](int64_t i) { return row.likely(list_weights[static_cast<int64_t>(room_at(i) & 0xffffffffu)]); };
  return number_in(room_at(reach(kept, target, likely).place) >> 32);
}

// The same for at most as many tokens as there are threads. Instead of sorting, each thread compares its own token with all others.
TS_DEVICE_INLINE uint64_t draw_from_few(const Drawn& row, int32_t found) {
  const int32_t thread = thread_index();
  const uint64_t key = thread < found ? room_at(thread) : uint64_t{0};
  int32_t place = 0;  // the place by falling key
  for (int32_t i = 0; i < found; ++i) place += room_at(i) > key ? 1 : 0;
  uint64_t weight = thread < found && place < row.asked.top_k ? row.weights.of(logit_in(key)) : uint64_t{0};
  list_weights[thread] = weight;
  barrier();
  if (row.choice.share) {
    uint64_t total = 0, before = 0;
    for (int32_t i = 0; i < found; ++i) {
      const uint64_t other = list_weights[i];
      total += other;
      before += room_at(i) > key ? other : 0;
    }
    weight = before < share_of(row.asked, total) ? weight : 0;
  }
  weight = row.likely(weight);
  barrier();  // after this, all threads have read the weights
  list_weights[thread] = weight;
  barrier();
  uint64_t total = 0, before = 0;  // both sums go over rising numbers
  for (int32_t i = 0; i < found; ++i) {
    const uint64_t other = list_weights[i];
    total += other;
    before += static_cast<uint32_t>(room_at(i)) > static_cast<uint32_t>(key) ? other : 0;
  }
  const uint64_t target = share_down(row.asked.draw, total) + 1;
  if (before < target && target <= before + weight) found_place[0] = number_in(key);
  barrier();
  return found_place[0];
}

TS_KERNEL(sample_choose, SampleArgs) {
  const int64_t at = block_index();
  const SampleRow& asked = args.rows[args.first + at];
  const Likeliest likeliest(args, at, kDraw);
  const float best = tell_best(args, at, likeliest.best);
  if (!is_drawn(asked, best)) return;
  const Weights weights = drawn_weights(args, asked, best);
  const Choice choice(asked, args.count);
  const uint64_t last = !choice.some && choice.share ? args.cuts[at] : 0;
  const Drawn row = {asked, drawn_from(args, at), args.count, sums_of(args, at, kDraw), args.parts, choice, weights, weights.least(asked), last};
  uint64_t token = 0;
  if (!choice.some) {
    token = draw_from_all(row);
  } else {
    // all other tokens have the weight 0
    const uint32_t found = list_wanted(likeliest, row.logits, row.count, static_cast<uint64_t>(asked.top_k), kLeastFinite);
    if (found <= kThreads) {
      token = draw_from_few(row, static_cast<int32_t>(found));
    } else {
      token = found <= kMostListed ? draw_from_list(row, static_cast<int32_t>(found)) : draw_from_row(row);
    }
  }
  if (thread_index() != 0) return;
  SampledRow& told = args.told[args.first + at];
  told.token = static_cast<int32_t>(token);
  told.raw = raw_of(args, at)[token];
}

}  // namespace cuda
}  // namespace twostroke
