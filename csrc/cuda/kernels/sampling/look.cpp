// sample_look, the first pass over rows of logits. It changes a row as the request wants and finds the likeliest token of each group of
// tokens.
#include "rows.h"

namespace twostroke {
namespace cuda {

template <class T>
TS_DEVICE_INLINE const T* asked_list(const SampleArgs& args, const SampleList& list) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(args.rows) + list.at);
}

// Calls `change` for each entry of a list whose token is in the part. A list has no token twice.
template <class Token, class Change>
TS_DEVICE_INLINE void change_listed(int32_t count, int64_t first, Token token, Change change) {
  for (int32_t i = thread_index(); i < count; i += kThreads) {
    const int64_t at = token(i) - first;
    if (at >= 0 && at < kThreads * kPartTokens) change(i);
  }
  barrier();
}

// Copies the part and applies penalties, bias and bans.
TS_DEVICE_INLINE void adjust_part(const SampleArgs& args, const SampleRow& asked, const Part& at) {
  const float* raw = raw_of(args, at.row);
  float* row = adjusted_of(args, at.row);
  const int64_t rest = args.count - at.first, tokens = rest < kThreads * kPartTokens ? rest : kThreads * kPartTokens;
  const PartTokens found(raw, at.first, args.count);
  TS_EVERY_LANE
  for (int i = 0; i < kPartTokens; ++i)
    if (found.token(i) < args.count) row[found.token(i)] = found.logits[i];
  barrier();
  const int32_t* seen = asked_list<int32_t>(args, asked.seen);
  const auto seen_token = [&](int32_t i) { return seen[i]; };
  change_listed(asked.seen.count, at.first, seen_token, [&](int32_t i) {
    const float logit = row[seen[i]];
    row[seen[i]] = logit > 0.0f ? logit / asked.repetition : logit * asked.repetition;
  });
  const LoweredToken* lowered = asked_list<LoweredToken>(args, asked.lowered);
  const auto lowered_token = [&](int32_t i) { return lowered[i].token; };
  change_listed(asked.lowered.count, at.first, lowered_token, [&](int32_t i) { row[lowered[i].token] = row[lowered[i].token] - lowered[i].by; });
  const LoweredToken* raised = asked_list<LoweredToken>(args, asked.raised);
  const auto raised_token = [&](int32_t i) { return raised[i].token; };
  change_listed(asked.raised.count, at.first, raised_token, [&](int32_t i) { row[raised[i].token] = row[raised[i].token] + raised[i].by; });
  const int32_t* banned = asked_list<int32_t>(args, asked.banned);
  const auto banned_token = [&](int32_t i) { return banned[i]; };
  change_listed(asked.banned.count, at.first, banned_token, [&](int32_t i) { row[banned[i]] = -__builtin_inff(); });
  if (asked.mask.count == 0) return;
  const uint32_t* mask = asked_list<uint32_t>(args, asked.mask);
  for (int64_t i = at.first + thread_index(); i < at.first + tokens; i += kThreads)
    if (!(mask[i / 32] >> (i % 32) & 1)) row[i] = -__builtin_inff();
  barrier();
}

// Stores the likeliest token of each group.
TS_DEVICE_INLINE void look_at(const SampleArgs& args, const Part& at, const float* row, int purpose) {
  const PartTokens found(row, at.first, args.count);
  uint32_t rank = 0;
  int64_t token = 0;
  TS_EVERY_LANE
  for (int i = 0; i < kPartTokens; ++i) {
    token = found.ranks[i] > rank ? found.token(i) : token;
    rank = found.ranks[i] > rank ? found.ranks[i] : rank;
  }
  uint64_t key = rank == 0 ? 0 : key_of(rank, token);
  for (int32_t mask = 1; mask < kThreads / kPartGroups; mask *= 2) {
    const uint64_t other = shuffle64(key, warp_lane() ^ mask);
    key = other > key ? other : key;
  }
  const int32_t members = kThreads / kPartGroups;
  if (thread_index() % members == 0) groups_of(args, at.row, purpose)[at.number * kPartGroups + thread_index() / members] = key;
}

TS_KERNEL(sample_look, SampleArgs) {
  const Part at = part_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  if (asked.changed) {
    adjust_part(args, asked, at);
    look_at(args, at, raw_of(args, at.row), kTell);
  }
  look_at(args, at, drawn_from(args, at.row), kDraw);
}

}  // namespace cuda
}  // namespace twostroke
