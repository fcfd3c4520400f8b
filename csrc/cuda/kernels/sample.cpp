// From rows of logits to tokens, a block a row: what src/twostroke/sampling computes, bit for bit. Kernels run one after the other:
//   sample_adjust  a copy of the row with penalties, bias and bans, where it has any
//   sample_best    the likeliest token before and after that
//   sample_weigh_raw, sample_score: weights of the row before that, their sum, and the most likely tokens
//   sample_weigh, sample_choose: weights of the row behind that, and the token
// Knows: rows of logits, what is asked of each. Must not know: requests.
#include "select.h"

#include "twostroke/token_weight.h"

namespace twostroke {
namespace cuda {

template <class T>
TS_DEVICE_INLINE const T* list_of(const SampleArgs& args, const SampleList& list) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(args.rows) + list.at);
}

// The row as it is drawn from.
TS_DEVICE_INLINE float* adjusted_of(const SampleArgs& args, int64_t row) { return args.adjusted + row * args.count; }
TS_DEVICE_INLINE const float* raw_of(const SampleArgs& args, int64_t row) { return args.logits + row * args.stride; }
TS_DEVICE_INLINE const float* drawn_from(const SampleArgs& args, int64_t row) {
  return args.rows[args.first + row].changed ? adjusted_of(args, row) : raw_of(args, row);
}

TS_KERNEL(sample_adjust, SampleArgs) {
  const SampleRow& asked = args.rows[args.first + block_index()];
  if (!asked.changed) return;
  const float* raw = raw_of(args, block_index());
  float* row = adjusted_of(args, block_index());
  const int32_t thread = thread_index();
  for (int64_t i = thread; i < args.count; i += kThreads) row[i] = raw[i];
  barrier();
  const int32_t* seen = list_of<int32_t>(args, asked.seen);
  for (int32_t i = thread; i < asked.seen.count; i += kThreads) {
    const float logit = row[seen[i]];
    row[seen[i]] = logit > 0.0f ? logit / asked.repetition : logit * asked.repetition;
  }
  barrier();
  const LoweredToken* lowered = list_of<LoweredToken>(args, asked.lowered);
  for (int32_t i = thread; i < asked.lowered.count; i += kThreads) row[lowered[i].token] = row[lowered[i].token] - lowered[i].by;
  barrier();
  const LoweredToken* raised = list_of<LoweredToken>(args, asked.raised);
  for (int32_t i = thread; i < asked.raised.count; i += kThreads) row[raised[i].token] = row[raised[i].token] + raised[i].by;
  barrier();
  const int32_t* banned = list_of<int32_t>(args, asked.banned);
  for (int32_t i = thread; i < asked.banned.count; i += kThreads) row[banned[i]] = -__builtin_inff();
  barrier();
  if (asked.mask.count == 0) return;
  const uint32_t* mask = list_of<uint32_t>(args, asked.mask);
  for (int64_t i = thread; i < args.count; i += kThreads)
    if (!(mask[i / 32] >> (i % 32) & 1)) row[i] = -__builtin_inff();
}

TS_SHARED(uint64_t, best_keys, kThreads);

// The first of the largest logits; the first NaN where there is one. Every thread has it.
TS_DEVICE_INLINE int64_t best_of(const float* row, int64_t count) {
  const Order order = {row, token_bits(count)};
  const int32_t thread = thread_index();
  uint64_t best = 0;
  for (int64_t i = thread; i < count; i += kThreads) {
    const uint64_t own = order.key(i);
    best = own > best ? own : best;
  }
  best_keys[thread] = best;
  barrier();
  if (thread < kDigits) {
    for (int i = 0; i < kShares; ++i) {
      const uint64_t other = best_keys[i * kDigits + thread];
      best = other > best ? other : best;
    }
    best_keys[thread] = best;
  }
  barrier();
  for (int i = 0; i < kDigits; ++i) {
    const uint64_t other = best_keys[i];
    best = other > best ? other : best;
  }
  barrier();
  return order.token(best);
}

TS_KERNEL(sample_best, SampleArgs) {
  const int64_t at = args.first + block_index();
  const float *raw = raw_of(args, block_index()), *row = drawn_from(args, block_index());
  const int64_t raw_best = best_of(raw, args.count);
  const int64_t best = row == raw ? raw_best : best_of(row, args.count);
  if (thread_index() != 0) return;
  SampledRow& told = args.told[at];
  told.raw_best = raw[raw_best];
  told.best = row[best];
  const int32_t given = args.rows[at].given;
  told.token = given > 0 ? given - 1 : static_cast<int32_t>(best);
  told.raw = raw[told.token];
  told.total = 0;
}

// Where a thread of the kernels with `parts` blocks a row works.
struct Place {
  int64_t row, token;
};

TS_DEVICE_INLINE Place place_of(const SampleArgs& args) {
  return {block_index() / args.parts, block_index() % args.parts * kThreads + thread_index()};
}

// At temperature 1, of rows that return log probabilities.
TS_KERNEL(sample_weigh_raw, SampleArgs) {
  const Place at = place_of(args);
  if (at.token >= args.count || args.rows[args.first + at.row].num_top < 0) return;
  const double peak = args.told[args.first + at.row].raw_best;
  args.weights[at.row * args.count + at.token] = token_weight(raw_of(args, at.row)[at.token], peak, args.scale, args.series);
}

TS_KERNEL(sample_weigh, SampleArgs) {
  const Place at = place_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  if (at.token >= args.count || !asked.drawn) return;
  const double peak = args.told[args.first + at.row].best;
  args.weights[at.row * args.count + at.token] = token_weight(drawn_from(args, at.row)[at.token], peak, asked.scale, args.series);
}

TS_SHARED(int32_t, places, kThreads);

TS_KERNEL(sample_score, SampleArgs) {
  const SampleRow& asked = args.rows[args.first + block_index()];
  SampledRow& told = args.told[args.first + block_index()];
  if (asked.num_top < 0) return;
  const uint64_t* weights = args.weights + block_index() * args.count;
  const int32_t thread = thread_index();
  uint64_t sum = 0;
  for (int64_t i = thread; i < args.count; i += kThreads) sum += weights[i];
  const uint64_t total = block_sum(sum);
  if (thread == 0) told.total = total;
  if (asked.num_top == 0) return;
  const Order order = {raw_of(args, block_index()), token_bits(args.count)};
  const uint64_t wanted = asked.num_top < args.count ? static_cast<uint64_t>(asked.num_top) : static_cast<uint64_t>(args.count);
  const uint64_t last = find_key(
      args.count, 32 + order.bits, wanted, [&](int64_t i) { return order.key(i); }, [](int64_t) { return uint64_t{1}; });
  int32_t own = 0;
  for (int64_t i = thread; i < args.count; i += kThreads) own += order.key(i) >= last;
  places[thread] = own;
  barrier();
  int32_t place = 0;
  for (int32_t i = 0; i < thread; ++i) place += places[i];
  for (int64_t i = thread; own > 0 && i < args.count; i += kThreads) {
    if (order.key(i) < last) continue;
    told.top_tokens[place] = static_cast<int32_t>(i);
    told.top_logits[place] = order.logits[i];
    ++place;
  }
}

TS_KERNEL(sample_choose, SampleArgs) {
  const SampleRow& asked = args.rows[args.first + block_index()];
  SampledRow& told = args.told[args.first + block_index()];
  if (!asked.drawn) return;
  const uint64_t* weights = args.weights + block_index() * args.count;
  const Order order = {drawn_from(args, block_index()), token_bits(args.count)};
  const auto key = [&](int64_t i) { return order.key(i); };
  uint64_t last = 0;  // keys below it are out
  const bool all = asked.top_k == 0 || asked.top_k >= args.count;
  if (!all)
    last = find_key(args.count, 32 + order.bits, static_cast<uint64_t>(asked.top_k), key, [](int64_t) { return uint64_t{1}; });
  const auto kept = [&](int64_t i) { return order.key(i) >= last ? weights[i] : 0; };
  uint64_t sum = 0;
  if (asked.top_p < uint64_t{1} << kShareBits) {
    for (int64_t i = thread_index(); i < args.count; i += kThreads) sum += kept(i);
    const uint64_t target = share_up(asked.top_p, block_sum(sum));
    last = find_key(args.count, 32 + order.bits, target == 0 ? 1 : target, key, kept);
  }
  const uint64_t least = share_up(asked.min_p, weights[told.token]);
  const auto likely = [&](int64_t i) { return weights[i] >= least ? kept(i) : 0; };
  sum = 0;
  for (int64_t i = thread_index(); i < args.count; i += kThreads) sum += likely(i);
  const uint64_t target = share_down(asked.draw, block_sum(sum)) + 1;
  const int64_t token =
      order.token(find_key(args.count, order.bits, target, [&](int64_t i) { return order.number(i); }, likely));
  barrier();  // all threads have read told.token
  if (thread_index() != 0 || token >= args.count) return;
  told.token = static_cast<int32_t>(token);
  told.raw = raw_of(args, block_index())[token];
}

}  // namespace cuda
}  // namespace twostroke
