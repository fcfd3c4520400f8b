// sample_choose: the token of each row that draws one. A block a row. Tokens count in the order of their numbers: the one is drawn at which
// the weights, added up, exceed the drawn share of their sum.
// Knows: what is asked of each row. Must not know: requests.
#include "best.h"
#include "twostroke/cuda/search.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

constexpr uint64_t kNone = ~uint64_t{0};

TS_SHARED(uint64_t, list_weights, kMostListed);

// A row that draws, by a block.
struct Drawn {
  const SampleRow& asked;
  const float* logits;
  int64_t count;
  const uint64_t* sums;  // of its parts
  int64_t parts;
  Choice choice;
  Weights weights;
  uint64_t least;  // what min-p asks of a weight

  TS_MEMBER_INLINE uint64_t likely(uint64_t weight) const { return weight >= least ? weight : 0; }
  // What of the sum of weights is drawn.
  TS_MEMBER_INLINE uint64_t target(uint64_t own) const { return share_down(asked.draw, block_sum(own)) + 1; }
  // What of the sum of weights top-p asks for.
  TS_MEMBER_INLINE uint64_t share(uint64_t own) const {
    const uint64_t asked_for = share_up(asked.top_p, block_sum(own));
    return asked_for == 0 ? 1 : asked_for;
  }
  TS_MEMBER_INLINE uint64_t sum_of_parts() const {
    uint64_t sum = 0;
    TS_ONE_BY_ONE
    for (int64_t i = thread_index(); i < parts; i += kThreads) sum += sums[i];
    return sum;
  }
};

// From all tokens whose weight min-p allows: their sums of parts are known.
TS_DEVICE_INLINE uint64_t draw_from_all(const Drawn& row) {
  const Reached part = reach(row.parts, row.target(row.sum_of_parts()), [&](int64_t i) { return row.sums[i]; });
  const int64_t first = part.place * kThreads * kPartTokens, rest = row.count - first;
  const auto likely = [&](int64_t i) { return row.likely(row.weights.of(row.logits[first + i])); };
  return static_cast<uint64_t>(first + reach(rest < kThreads * kPartTokens ? rest : kThreads * kPartTokens, part.left, likely).place);
}

// Where the list is too short.
TS_DEVICE_INLINE uint64_t draw_from_row(const Drawn& row) {
  uint64_t last = 0;  // keys below it are out
  if (row.choice.some) last = find_key(row.logits, row.count, static_cast<uint64_t>(row.asked.top_k), rank_of, [](float) { return uint64_t{1}; });
  const auto kept = [&](int64_t token, float logit) { return key_of(rank_of(logit), token) >= last ? row.weights.of(logit) : 0; };
  if (row.choice.share) {
    uint64_t sum = row.choice.some ? 0 : row.sum_of_parts();
    if (row.choice.some) over_row(row.logits, row.count, [&](int64_t token, float logit) { sum += kept(token, logit); });
    // Tokens that top-k leaves out come behind all others, and the share is reached before them.
    last = find_key(row.logits, row.count, row.share(sum), rank_of, [&](float logit) { return row.weights.of(logit); });
  }
  uint64_t sum = 0;
  over_row(row.logits, row.count, [&](int64_t token, float logit) { sum += row.likely(kept(token, logit)); });
  const auto likely = [&](int64_t i) { return row.likely(kept(i, row.logits[i])); };
  return static_cast<uint64_t>(reach(row.count, row.target(sum), likely).place);
}

// From the `found` likeliest tokens, whose keys are in `room`; kNone where the share that top-p asks for goes on behind them.
TS_DEVICE_INLINE uint64_t draw_from_list(const Drawn& row, int32_t found) {
  const int32_t thread = thread_index();
  sort_room(found);
  TS_ONE_BY_ONE
  for (int32_t i = thread; i < found; i += kThreads) list_weights[i] = row.weights.of(logit_in(room_at(i)));
  int32_t kept = row.choice.some && row.asked.top_k < found ? row.asked.top_k : found;
  if (row.choice.share) {
    uint64_t sum = 0;
    TS_ONE_BY_ONE
    for (int32_t i = thread; i < kept; i += kThreads) sum += list_weights[i];
    const uint64_t share = row.share(row.choice.some ? sum : row.sum_of_parts());
    if (block_sum(sum) < share) return kNone;
    kept = static_cast<int32_t>(reach(kept, share, [](int64_t i) { return static_cast<uint64_t>(list_weights[i]); }).place) + 1;
  }
  uint64_t sum = 0;
  TS_ONE_BY_ONE
  for (int32_t i = thread; i < kept; i += kThreads) {
    sum += row.likely(list_weights[i]);
    put_room(i, room_at(i) << 32 | static_cast<uint64_t>(i));  // falling order is that of rising numbers now
  }
  const uint64_t target = row.target(sum);
  sort_room(kept);
  const auto likely = [&](int64_t i) { return row.likely(list_weights[static_cast<int64_t>(room_at(i) & 0xffffffffu)]); };
  return number_in(room_at(reach(kept, target, likely).place) >> 32);
}

TS_KERNEL(sample_choose, SampleArgs) {
  const int64_t at = block_index();
  const SampleRow& asked = args.rows[args.first + at];
  const Likeliest likeliest(args, at, kDraw);
  const float best = tell_best(args, at, likeliest.best);
  if (!is_drawn(asked, best)) return;
  const Weights weights = drawn_weights(args, asked, best);
  const Choice choice(asked, args.count);
  const Drawn row = {asked, drawn_from(args, at), args.count, sums_of(args, at, kDraw), args.parts, choice, weights, weights.least(asked)};
  uint64_t token = kNone;
  if (!choice.some && !choice.share) {
    token = draw_from_all(row);
  } else {
    const uint64_t wanted = choice.some ? static_cast<uint64_t>(asked.top_k) : kLikelyTokens;
    const uint32_t found = list_wanted(likeliest, row.logits, row.count, wanted, kLeastFinite);  // others have no weight
    if (found <= kMostListed) token = draw_from_list(row, static_cast<int32_t>(found));
    if (token == kNone) token = draw_from_row(row);
  }
  if (thread_index() != 0) return;
  SampledRow& told = args.told[args.first + at];
  told.token = static_cast<int32_t>(token);
  told.raw = raw_of(args, at)[token];
}

}  // namespace cuda
}  // namespace twostroke
