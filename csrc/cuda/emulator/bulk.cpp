// The emulator's part for bulk.h: signals, bulk copies, and products of warpgroups. A copy arrives as late as possible, which is when no thread can run without it.
// What orders two accesses is known. Each warp counts its arrivals, and knows for each other warp how many of them came before. It knows this from a signal that it waited for, or from a
// barrier. A copy may begin where all reads of the last one came before. A thread may read where the
// copy has arrived and its warp waited for the copy's signal, or another warp did before a barrier.
#include "twostroke/cuda/machine/bulk.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int32_t kMostRegions = 64;

// A region of shared memory that copies write whole. phase: the phase of the signal in which the last copy arrived. seen: a bit for each warp that waited for the end of this phase. reads: the
// count of each warp when it last read, plus 1.
struct Region {
  Accesses* accesses;
  Words4* to;
  const char* name;
  const void* from;
  Signal* signal;
  int64_t index, count;
  uint32_t phase, seen, reads[kMostWarps];
  bool arrived;
};

struct Copies {
  Region regions[kMostRegions];
  int32_t count, next;  // next: the region whose copy arrives next
  uint32_t known[kMostWarps][kMostWarps];  // known[w][v]: how many arrivals of warp v came before what warp w does now; its own with v = w
};

constexpr int32_t kMostAdded = 4;

// A product that is under way in a thread, of the sum of `count` products.
struct Product {
  Region* regions[kMostAdded];
  const uint32_t* operands[kMostAdded];
  int64_t block;
  int32_t count, sums[32];
  uint32_t a[kMostAdded][16];
};

constexpr int32_t kMostThreads = kMostWarps * kWarp, kUnknown = 0x5a5a1234;
constexpr uint32_t kReading = ~uint32_t{0};

Copies copies;
Product products[kMostThreads];

int32_t own_warp() { return thread_index() / kWarp; }

void learn(uint32_t (&to)[kMostWarps], const uint32_t (&from)[kMostWarps]) {
  for (int32_t v = 0; v < kMostWarps; ++v) to[v] = to[v] < from[v] ? from[v] : to[v];
}

void end_phase(Signal& signal) {
  if (signal.missing > 0 || signal.bytes != 0) return;
  memcpy(signal.seen, signal.arrived, sizeof signal.seen);
  signal.missing = signal.count;
  ++signal.phase;
}

bool is_begun(const Signal& signal) {
  const bool found = signal.block == running().block;
  if (!found) fail("a signal that this block has not begun", "signal", 0);
  return found;
}

Region* region_of(const char* name, int64_t index) {
  for (int32_t i = 0; i < copies.count; ++i) {
    Region& each = copies.regions[i];
    if (each.name == name && index >= each.index && index < each.index + each.count) return &each;
  }
  return nullptr;
}

Region* new_region(Accesses* accesses, Words4* to, const char* name, int64_t index, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (region_of(name, index + i) != nullptr) return nullptr;
  if (copies.count == kMostRegions) return nullptr;
  Region& made = copies.regions[copies.count++];
  made = {accesses, to, name, nullptr, nullptr, index, count, 0, 0, {}, true};
  return &made;
}

// Whether all reads of a region came before what this thread does now.
bool is_read_before(const Region& region) {
  for (int32_t v = 0; v < kMostWarps; ++v)
    if (v != own_warp() && region.reads[v] > copies.known[own_warp()][v]) return false;
  return true;
}

void note_region_read(Region& region) {
  const int32_t own = own_warp();
  if (!region.arrived) fail("read of what a bulk copy has not brought", region.name, region.index);
  if ((region.seen >> own & 1) == 0)
    fail("read of what a bulk copy brought, with no signal in between", region.name, region.index);
  region.reads[own] = copies.known[own][own] + 1;
}

}  // namespace

void begin_block_copies() { memset(&copies, 0, sizeof copies); }

void join_warps_at_barrier() {
  for (int32_t w = 1; w < kMostWarps; ++w) learn(copies.known[0], copies.known[w]);
  for (int32_t v = 0; v < kMostWarps; ++v) ++copies.known[0][v];
  for (int32_t w = 1; w < kMostWarps; ++w) memcpy(copies.known[w], copies.known[0], sizeof copies.known[0]);
  for (int32_t i = 0; i < copies.count; ++i)
    if (copies.regions[i].seen != 0) copies.regions[i].seen = ~uint32_t{0};
}

bool land_copy() {
  for (int32_t i = 0; i < copies.count; ++i) {
    Region& each = copies.regions[(copies.next + i) % copies.count];
    if (each.arrived) continue;
    each.arrived = true;
    memcpy(each.to, each.from, static_cast<size_t>(each.count) * sizeof(Words4));
    Signal& signal = *each.signal;
    each.phase = signal.phase;
    signal.bytes -= each.count * static_cast<int64_t>(sizeof(Words4));
    end_phase(signal);
    copies.next = (copies.next + i + 1) % copies.count;
    return true;
  }
  return false;
}

void copied_read(const Accesses&, const char* name, int64_t index) {
  Region* region = region_of(name, index);
  if (region != nullptr) note_region_read(*region);
}

void copied_write(const Accesses&, const char* name, int64_t index) {
  const Region* region = region_of(name, index);
  if (region == nullptr) return;
  if (!region->arrived || !is_read_before(*region)) fail("write of what a bulk copy brought and a thread may still read", name, index);
}

void begin_signal(Signal& signal, int32_t count) {
  signal = {};
  signal.block = running().block;
  signal.count = signal.missing = count;
}

void arrive_at(Signal& signal, int64_t bytes) {
  if (!is_begun(signal)) return;
  const int32_t own = own_warp();
  ++copies.known[own][own];
  learn(signal.arrived, copies.known[own]);
  signal.bytes += bytes;
  --signal.missing;
  end_phase(signal);
}

void wait_for(Signal& signal, uint32_t parity) {
  if (!is_begun(signal)) return;
  while ((signal.phase & 1) == parity) let_others_run();
  note_advance();
  learn(copies.known[own_warp()], signal.seen);
  for (int32_t i = 0; i < copies.count; ++i) {
    Region& each = copies.regions[i];
    if (each.signal == &signal && each.arrived && each.phase < signal.phase) each.seen |= uint32_t{1} << own_warp();
  }
}

void begin_bulk_copy(Accesses* accesses, Words4* to, const char* name, int64_t index, const void* from, int64_t count, Signal& signal) {
  if (!is_begun(signal)) return;
  const Now now = running();
  Region* region = region_of(name, index);
  if (region == nullptr) region = new_region(accesses, to, name, index, count);
  if (region == nullptr || region->index != index || region->count != count) return fail("copies of regions that overlap", name, index);
  if (!region->arrived) return fail("a bulk copy to where another one is under way", name, index);
  if (!is_read_before(*region)) return fail("a bulk copy to what a thread may still read", name, index);
  for (int64_t i = 0; i < count; ++i) {
    Accesses& each = accesses[i];
    const bool now_used = each.block == now.block && (each.write_stretch == now.stretch || each.read_stretch == now.stretch);
    if (now_used) return fail("a bulk copy to what a thread reads or writes, with no barrier in between", name, index + i);
    each = {now.block, kCopied, 0, 0, 0};
  }
  region->from = from;
  region->signal = &signal;
  region->seen = 0;
  region->arrived = false;
  memset(region->reads, 0, sizeof region->reads);
}

void begin_product(int32_t (&registers)[32], const uint32_t (&a)[16], Accesses* accesses, const Words4* b, const char* name, int64_t index, bool more) {
  Product& own = products[thread_index()];
  if (own.block != running().block) own.count = 0;
  own.block = running().block;
  if (more != own.count > 0 || own.count == kMostAdded) return fail("a product while another one is under way", name, index);
  const int32_t lane = thread_index() % kWarp, g = lane / 4, t = lane % 4;
  if (index % kProductRows != 0 || threads() % kGroupSize != 0) fail("a product that no warpgroup can compute", name, index);
  for (int64_t i = 0; i < kProductWords; ++i)
    if (accesses[i].block != running().block || accesses[i].write_stretch != kCopied) return fail("a product of what no bulk copy brought", name, index + i);
  Region* region = region_of(name, index);
  if (region->index != index || region->count != kProductWords) return fail("a product of parts of regions", name, index);
  note_region_read(*region);
  region->reads[own_warp()] = kReading;
  if (!more) memset(own.sums, 0, sizeof own.sums);
  const int8_t* bytes = reinterpret_cast<const int8_t*>(b);
  for (int32_t s = 0; s < 4; ++s) {
    int8_t rows[2][32];
    const Given* given = exchanged(a + 4 * s, 4);
    for (int32_t i = 0; i < 16; ++i) memcpy(&rows[i % 2][i / 8 * 16 + i / 2 % 4 * 4], &given[4 * g + i / 2 % 4][i / 8 * 2 + i % 2], 4);
    for (int32_t i = 0; i < 32; ++i) {
      const int32_t row = i / 4 * 8 + 2 * t + i % 2;
      int32_t total = 0;
      for (int32_t half = 0; half < 2; ++half) {
        const int8_t* column = bytes + product_place(row, 2 * s + half) * 16;
        for (int32_t k = 0; k < 16; ++k) total += rows[i / 2 % 2][16 * half + k] * column[k];
      }
      own.sums[i] = static_cast<int32_t>(static_cast<uint32_t>(own.sums[i]) + static_cast<uint32_t>(total));
    }
  }
  own.regions[own.count] = region;
  own.operands[own.count] = a;
  memcpy(own.a[own.count++], a, sizeof a);
  for (int32_t i = 0; i < 32; ++i) registers[i] = kUnknown;
}

void end_product(int32_t (&registers)[32]) {
  Product& own = products[thread_index()];
  if (own.block != running().block || own.count == 0) return fail("an end without a product", "product", 0);
  bool kept = true;
  for (int32_t i = 0; i < 32; ++i) kept = kept && registers[i] == kUnknown;
  for (int32_t i = 0; i < own.count; ++i) {
    kept = kept && memcmp(own.a[i], own.operands[i], sizeof own.a[i]) == 0;
    note_region_read(*own.regions[i]);
  }
  if (!kept) fail("a write to registers of a product that is under way", own.regions[0]->name, own.regions[0]->index);
  memcpy(registers, own.sums, sizeof own.sums);
  own.count = 0;
  meet_warp();  // then no thread of the warp still reads
}

void meet_warp() {
  const uint32_t nothing = 0;
  exchanged(&nothing, 0);
}

uint32_t largest_of_warp(uint32_t value) {
  const int32_t rest = threads() - thread_index() / kWarp * kWarp, lanes = rest < kWarp ? rest : kWarp;
  const Given* given = exchanged(&value, 1);
  uint32_t most = 0;
  for (int32_t i = 0; i < lanes; ++i) most = given[i][0] > most ? given[i][0] : most;
  return most;
}

}  // namespace cuda
}  // namespace twostroke
