// sample_choose: the token of each row that draws one. A block a row. Tokens count in the order of their numbers: the one is drawn at which
// the weights, added up, exceed the drawn share of their sum.
// Knows: what is asked of each row. Must not know: requests.
#include "block.h"
#include "rows.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

constexpr uint64_t kNone = ~uint64_t{0};
constexpr int kHeld = kMostListed / kThreads;  // keys of a list that a thread has, one behind the other

TS_SHARED(uint64_t, found_place, 2);

// The place among `count` at which the measure, added up, first reaches `target`, and what of the target is left there. Every thread has
// both. `target` is 1 to the whole sum.
struct Reached {
  int64_t place;
  uint64_t left;
};

template <class Measure>
TS_DEVICE_INLINE Reached reach(int64_t count, uint64_t target, Measure measure) {
  const int64_t each = (count + kThreads - 1) / kThreads, first = thread_index() * each;
  const int64_t end = first + each < count ? first + each : count;
  uint64_t sum = 0;
  for (int64_t i = first; i < end; ++i) sum += measure(i);
  const uint64_t up_to = block_sum_up_to(sum);
  if (up_to >= target && up_to - sum < target) {
    uint64_t left = target - (up_to - sum);
    int64_t at = first;
    for (uint64_t size = measure(at); size < left; size = measure(at)) {
      left -= size;
      ++at;
    }
    found_place[0] = static_cast<uint64_t>(at);
    found_place[1] = left;
  }
  barrier();
  return {static_cast<int64_t>(static_cast<uint64_t>(found_place[0])), found_place[1]};
}

// Where all tokens whose weight reaches `least` are drawn from: the parts' sums are known.
TS_DEVICE_INLINE uint64_t draw_from_all(const SampleArgs& args, int64_t row, const SampleRow& asked, const Weights& weights, uint64_t least) {
  const uint64_t* sums = sums_of(args, row, kDraw);
  uint64_t sum = 0;
  for (int64_t i = thread_index(); i < args.parts; i += kThreads) sum += sums[i];
  const uint64_t target = share_down(asked.draw, block_sum(sum)) + 1;
  const Reached part = reach(args.parts, target, [&](int64_t i) { return sums[i]; });
  const int64_t first = part.place * kThreads * kPartTokens, rest = args.count - first;
  const float* logits = drawn_from(args, row) + first;
  const auto likely = [&](int64_t i) {
    const uint64_t weight = weights.of(logits[i]);
    return weight >= least ? weight : 0;
  };
  barrier();  // all have read found_place
  const Reached token = reach(rest < kThreads * kPartTokens ? rest : kThreads * kPartTokens, part.left, likely);
  return static_cast<uint64_t>(first + token.place);
}

// The whole row for each digit: where the list is too short.
TS_DEVICE_INLINE uint64_t draw_slowly(const SampleArgs& args, int64_t row, const SampleRow& asked, const Weights& weights, uint64_t least) {
  const float* logits = drawn_from(args, row);
  const auto key = [&](int64_t i) { return key_of(rank_of(logits[i]), i); };
  uint64_t last = 0;  // keys below it are out
  if (Choice(asked, args.count).some)
    last = find_key(args.count, static_cast<uint64_t>(asked.top_k), key, [](int64_t) { return uint64_t{1}; });
  const auto sum_of = [&](auto measure) {
    uint64_t sum = 0;
    for (int64_t i = thread_index(); i < args.count; i += kThreads) sum += measure(i);
    return block_sum(sum);
  };
  const auto kept = [&](int64_t i) { return key(i) >= last ? weights.of(logits[i]) : 0; };
  if (Choice(asked, args.count).share) {
    const uint64_t target = share_up(asked.top_p, sum_of(kept));
    last = find_key(args.count, target == 0 ? 1 : target, key, kept);
  }
  const auto likely = [&](int64_t i) {
    const uint64_t weight = kept(i);
    return weight >= least ? weight : 0;
  };
  const uint64_t target = share_down(asked.draw, sum_of(likely)) + 1;
  return static_cast<uint64_t>(reach(args.count, target, likely).place);
}

// The first `size` keys in `room`, and their weights: those of thread t are `each` behind t * each.
struct Listed {
  int32_t first, each;
  uint64_t weights[kHeld];
  uint32_t tokens[kHeld];

  TS_MEMBER_INLINE Listed(int32_t size, const Weights& of) : first(0), each((size + kThreads - 1) / kThreads), weights{}, tokens{} {
    first = thread_index() * each;
    TS_EVERY_LANE
    for (int i = 0; i < kHeld; ++i) {
      if (i >= each || first + i >= size) continue;
      const uint64_t key = room[first + i];
      if (key == 0) continue;
      weights[i] = of.of(logit_in(key));
      tokens[i] = token_in(key);
    }
  }
  // The sum of weights of those with `counts`.
  template <class Counts>
  TS_MEMBER_INLINE uint64_t sum(Counts counts) const {
    uint64_t found = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kHeld; ++i) found += counts(i) ? weights[i] : 0;
    return found;
  }
  // How many of all come before the sum of weights reaches `target`.
  TS_MEMBER_INLINE int32_t before(uint64_t target) const {
    const uint64_t own = sum([](int) { return true; });
    uint64_t up_to = block_sum_up_to(own) - own, count = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kHeld; ++i) {
      up_to += weights[i];
      count += i < each && up_to < target;
    }
    return static_cast<int32_t>(block_sum(count));
  }
};

// From a list of the likeliest tokens; kNone where the share that top-p asks for goes on behind it.
TS_DEVICE_INLINE uint64_t draw_from_list(const SampleArgs& args, int64_t row, const SampleRow& asked, const Weights& weights, uint64_t least) {
  const Choice choice(asked, args.count);
  const int32_t listed = static_cast<int32_t>(args.states[row].listed[kDraw]);
  const Listed list(sort_room(list_of(args, row, kDraw), listed), weights);
  int32_t kept = choice.some && asked.top_k < listed ? asked.top_k : listed;
  if (choice.share) {
    uint64_t sum = 0;
    for (int64_t i = thread_index(); !choice.some && i < args.parts; i += kThreads) sum += sums_of(args, row, kDraw)[i];
    if (choice.some) sum = list.sum([&](int i) { return list.first + i < kept; });
    const uint64_t target = share_up(asked.top_p, block_sum(sum));
    const int32_t reached = list.before(target == 0 ? 1 : target) + 1;
    if (reached > kept) return kNone;
    kept = reached;
  }
  const auto likely = [&](int i) { return list.first + i < kept && list.weights[i] >= least; };
  const uint64_t target = share_down(asked.draw, block_sum(list.sum(likely))) + 1;
  uint32_t token = 0;  // the largest whose weights below stay below the target
  for (int64_t bit = int64_t{1} << 30; bit > 0; bit /= 2) {
    if (bit >= args.count) continue;
    const uint32_t next = token | static_cast<uint32_t>(bit);
    const uint64_t below = block_sum(list.sum([&](int i) { return likely(i) && list.tokens[i] < next; }));
    token = below < target ? next : token;
  }
  return token;
}

TS_KERNEL(sample_choose, SampleArgs) {
  const int64_t row = block_index();
  const SampleRow& asked = args.rows[args.first + row];
  SampledRow& told = args.told[args.first + row];
  if (!is_drawn(asked, told)) return;
  const Weights weights = drawn_weights(args, asked, told);
  const uint64_t least = weights.least(asked);
  uint64_t token = kNone;
  if (!Choice(asked, args.count).listed()) {
    token = draw_from_all(args, row, asked, weights, least);
  } else {
    if (args.states[row].listed[kDraw] <= kMostListed) token = draw_from_list(args, row, asked, weights, least);
    if (token == kNone) token = draw_slowly(args, row, asked, weights, least);
  }
  if (thread_index() != 0) return;
  told.token = static_cast<int32_t>(token);
  told.raw = raw_of(args, row)[token];
}

}  // namespace cuda
}  // namespace twostroke
