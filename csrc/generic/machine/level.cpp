// The level for which this library was compiled, and the levels that this CPU can run.
#include "twostroke/context.h"
#include "twostroke/level.h"
#include "twostroke/system/system.h"

int32_t ts_abi_version(void) { return TS_ABI_VERSION; }

const char* ts_level_name(void) { return twostroke::kLevel.name; }

#if defined(__x86_64__)
#include <cpuid.h>
#include <string.h>

namespace {

// The operating system must save the wide registers: XCR0 bits 1-2 (AVX) and 5-7 (AVX-512).
uint64_t enabled_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool has(uint32_t bits, int bit) { return (bits >> bit) & 1; }

bool may_use_tiles(uint64_t state) { return (state & 0x60000) == 0x60000 && twostroke::allow_tiles(); }

bool made_by_amd() {
  uint32_t highest, words[3];
  return __get_cpuid(0, &highest, &words[0], &words[2], &words[1]) && memcmp(words, "AuthenticAMD", 12) == 0;
}

}  // namespace

bool ts_likes_turns() { return !made_by_amd(); }

int32_t ts_levels(void) {
  constexpr int32_t kGeneric = 1, kAvx2 = 1 << 1, kAvxVnni = 1 << 2, kAvx512 = 1 << 3, kAmx = 1 << 4;
  uint32_t a, b, c, d, a7, b7, c7, d7;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 27)) return kGeneric;
  const bool f16c_fma = has(c, 12) && has(c, 28) && has(c, 29);
  if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return kGeneric;
  const uint64_t state = enabled_state();
  if (!f16c_fma || !has(b7, 5) || !has(b7, 3) || !has(b7, 8) || (state & 0x6) != 0x6) return kGeneric;
  const bool avx512 = has(b7, 16) && has(b7, 17) && has(b7, 28) && has(b7, 30) && has(b7, 31) && has(c7, 11);
  uint32_t a71 = 0, b71, c71, d71;
  const bool further = a7 >= 1 && __get_cpuid_count(7, 1, &a71, &b71, &c71, &d71);
  const int32_t narrow = kGeneric | kAvx2 | (further && has(a71, 4) ? kAvxVnni : 0);
  if (!avx512 || (state & 0xE0) != 0xE0) return narrow;
  const bool tiles = further && has(a71, 5) && has(d7, 22) && has(d7, 24) && has(d7, 25) && may_use_tiles(state);
  return narrow | kAvx512 | (tiles ? kAmx : 0);
}
#elif defined(__aarch64__)
bool ts_likes_turns() { return false; }

int32_t ts_levels(void) {
  const uint32_t has = twostroke::arm_features();
  if ((has & twostroke::kArmVectors) == 0) return 1;
  if ((has & twostroke::kArmDotProducts) == 0) return 3;
  return (has & twostroke::kArmMatrices) == 0 ? 7 : 15;
}
#else
bool ts_likes_turns() { return false; }
int32_t ts_levels(void) { return 1; }
#endif
