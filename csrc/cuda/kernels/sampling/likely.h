// The likeliest tokens of a row, found with the groups of its tokens that sample_look examined. A token that is as likely as one of the
// wanted tokens belongs to a group whose likeliest token is, too. So few groups are read a second time.
#pragma once
#include "twostroke/cuda/machine/block.h"
#include "rows.h"

namespace twostroke {
namespace cuda {

static_assert(kMostListed == kRoom, "the room holds the list");

constexpr int kSlots = 16;  // slots of a thread, each for some groups
constexpr int kGroupTokens = kThreads / kPartGroups * kPartTokens;  // tokens of one group
constexpr int kCountBits = 21, kWarpCountBits = 10;  // bits of a number of slots, for a block and for a warp
static_assert(kSlots * kWarp < 1 << kWarpCountBits, "all slots of a warp may count");

// The groups of a row: the likeliest token of all, and the rank of the likeliest token of each slot, which has one or more groups.
struct Likeliest {
  const uint64_t* groups;
  int64_t count;
  uint64_t best;
  uint32_t ranks[kSlots];

  TS_MEMBER_INLINE Likeliest(const SampleArgs& args, int64_t row, int purpose)
      : groups(groups_of(args, row, purpose)), count(args.parts * kPartGroups), best(0), ranks{} {
    TS_ONE_BY_ONE
    for (int64_t first = thread_index(); first < count; first += kThreads * kSlots) {
      TS_EVERY_LANE
      for (int i = 0; i < kSlots; ++i) {
        const uint64_t key = first + i * kThreads < count ? groups[first + i * kThreads] : 0;
        best = key > best ? key : best;
        ranks[i] = rank_in(key) > ranks[i] ? rank_in(key) : ranks[i];
      }
    }
    best = block_most(best);
  }

  // Finds a rank that at least `wanted` slots reach, and not many more. It is 0 where there are fewer slots. The search takes two bits at a
  // time.
  TS_MEMBER_INLINE uint32_t floor(uint64_t wanted) const {
    uint32_t found = 0;
    TS_ONE_BY_ONE
    for (int shift = 30; shift >= 0; shift -= 2) {
      uint32_t own = 0;  // three counts in one number
      TS_EVERY_LANE
      for (int i = 0; i < kSlots; ++i) {
        TS_EVERY_LANE
        for (uint32_t digit = 1; digit < 4; ++digit) own += (ranks[i] >= (found | digit << shift) ? 1u : 0u) << (kWarpCountBits * (digit - 1));
      }
      const uint32_t of_warp = warp_total(own);
      uint64_t above = 0;
      TS_EVERY_LANE
      for (uint32_t digit = 0; digit < 3; ++digit) {
        const uint64_t slots = of_warp >> (kWarpCountBits * digit) & ((1u << kWarpCountBits) - 1);
        above |= slots << (kCountBits * digit);
      }
      above = join_warps(above, [](uint64_t a, uint64_t b) { return a + b; });
      uint64_t reached = 0;
      uint32_t most = 0;
      TS_EVERY_LANE
      for (uint32_t digit = 1; digit < 4; ++digit) {
        const uint64_t slots = above >> (kCountBits * (digit - 1)) & ((uint64_t{1} << kCountBits) - 1);
        most = slots >= wanted ? digit : most;
        reached = slots >= wanted ? slots : reached;
      }
      found |= most << shift;
      if (most > 0 && reached <= wanted + wanted / 8) break;
    }
    return found;
  }
};

TS_SHARED(uint32_t, listed, 2);  // the number of groups, and the number of tokens
TS_SHARED(uint32_t, listed_groups, kMostListed);

// Puts the keys of the tokens whose rank reaches `floor` (above 0) into `room`, in any order. Returns how many there are; more than
// kMostListed do not fit.
TS_DEVICE_INLINE uint32_t list_likely(const Likeliest& of, const float* logits, int64_t count, uint32_t floor) {
  if (thread_index() < 2) listed[thread_index()] = 0;
  barrier();
  TS_ONE_BY_ONE
  for (int64_t group = thread_index(); group < of.count; group += kThreads) {
    if (rank_in(of.groups[group]) < floor) continue;
    const uint32_t place = atomic_add(listed, 0, 1);
    if (place < kMostListed) listed_groups[place] = static_cast<uint32_t>(group);
  }
  barrier();
  const uint32_t groups = listed[0];
  if (groups > kMostListed) return groups;
  constexpr int kAtOnce = 8;
  const int64_t members = kThreads / kPartGroups, tokens = static_cast<int64_t>(groups) * kGroupTokens;
  TS_ONE_BY_ONE
  for (int64_t first = thread_index(); first < tokens; first += kThreads * kAtOnce) {
    int64_t numbers[kAtOnce];
    uint32_t ranks[kAtOnce];
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = first + i * kThreads;
      numbers[i] = count;
      if (at < tokens) {
        const int64_t group = static_cast<uint32_t>(listed_groups[at / kGroupTokens]), inside = at % kGroupTokens;
        numbers[i] = group / kPartGroups * kThreads * kPartTokens + inside / members * kThreads + group % kPartGroups * members + inside % members;
      }
      ranks[i] = numbers[i] < count ? rank_of(logits[numbers[i]]) : 0;
    }
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) {
      if (ranks[i] < floor) continue;
      const uint32_t place = atomic_add(listed, 1, 1);
      if (place < kMostListed) put_room(place, key_of(ranks[i], numbers[i]));
    }
  }
  barrier();
  return listed[1];
}

// Lists the tokens that matter for `wanted`, like list_likely. Tokens with -infinity are listed only where the caller wants them.
TS_DEVICE_INLINE uint32_t list_wanted(const Likeliest& of, const float* logits, int64_t count, uint64_t wanted, uint32_t least) {
  const uint32_t floor = count <= kMostListed ? 0 : of.floor(wanted);
  return list_likely(of, logits, count, floor > least ? floor : least);
}

}  // namespace cuda
}  // namespace twostroke
