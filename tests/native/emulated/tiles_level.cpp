// The functions of csrc/generic/machine/level.cpp for a library of the level `amx` whose matrix registers are emulated (tiles.h).
#include <cpuid.h>

#include "twostroke/context.h"

int32_t ts_abi_version(void) { return TS_ABI_VERSION; }

const char* ts_level_name(void) { return "amx"; }

bool ts_likes_turns() { return true; }

// Bit 4 is set where this CPU has the instructions for which the level's vector code was compiled: bf16 instructions, or fewer where they
// are emulated, too.
int32_t ts_levels(void) {
#if defined(__AVX512BF16__)
  uint32_t a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) ? 1 << 4 : 0;
#else
  return 1 << 4;
#endif
}
