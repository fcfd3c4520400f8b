// Tests whether tiles.h does what Intel's manual defines. check() tests known answers; fault() makes a fault.
#include "tiles.h"

#define CHECK(what) \
  if (!(what)) return __LINE__

namespace {

uint16_t bf16(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  return static_cast<uint16_t>(word >> 16);
}

// Registers 0 (m, n), 1 (m, k), 2 (k, n) of 32-bit elements.
void configure(int m, int n, int k) {
  tiles::Config config = {};
  config.palette = 1;
  const int rows[] = {m, m, k}, elements[] = {n, k, n};
  for (int i = 0; i < 3; ++i) {
    config.rows[i] = static_cast<uint8_t>(rows[i]);
    config.row_bytes[i] = static_cast<uint16_t>(4 * elements[i]);
  }
  _tile_loadconfig(&config);
}

// One row of four pairs times one column of four pairs of b, added to `sum`.
float dot(float sum, const float (&a)[8], const float (&b)[8]) {
  uint16_t x[8], y[8];
  for (int i = 0; i < 8; ++i) x[i] = bf16(a[i]), y[i] = bf16(b[i]);
  configure(1, 1, 4);
  _tile_loadd(0, &sum, 4);
  _tile_loadd(1, x, 16);
  _tile_loadd(2, y, 4);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, &sum, 4);
  _tile_release();
  return sum;
}

int pairs() {
  constexpr float kLarge = 16777216.0f;  // 2^24, at which adding one is lost
  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(dot(0.5f, {kLarge, 3, 1, 0, -kLarge, 0, 0, 0}, ones) == 3.5f);  // first and second numbers are added separately, with rising k
  CHECK(dot(kLarge, {1, 1, 0, 0, 0, 0, 0, 0}, ones) == kLarge + 2);  // their sum comes before the earlier contents
  CHECK(dot(1.0f, {kLarge, 0, 0, -kLarge, 0, -1, 0, 0}, ones) == 1.0f);     // each sum is rounded, ties to even
  CHECK(dot(0.0f, {1e-39f, 0, 0, 0, 0, 0, 0, 0}, {1e30f, 1, 1, 1, 1, 1, 1, 1}) == 0.0f);  // a denormal number counts as zero
  CHECK(dot(0.0f, {1e-20f, 1e-20f, 0, 0, 0, 0, 0, 0}, {1e-20f, 1e-20f, 1, 1, 1, 1, 1, 1}) == 0.0f);  // a denormal result becomes zero
  CHECK(dot(1e-39f, {0, 0, 0, 0, 0, 0, 0, 0}, ones) == 0.0f);
  const unsigned before = _mm_getcsr(), up = (before & ~0x6000u) | 0x4000u;
  _mm_setcsr(up);  // the thread rounds up, but the instruction still rounds to the nearest
  const float sum = dot(1.0f, {9.0e-10f, 0, 0, 0, 0, 0, 0, 0}, ones);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(sum == 1.0f && after == up);
  return 0;
}

// A sum after a (2 rows of 16 quads) times b, each byte the same; guards around the 2 by 3 sums.
template <class Multiply>
int32_t quads(int32_t sum, uint8_t a, uint8_t b, const Multiply& multiply) {
  alignas(64) uint8_t x[2 * 64], y[16 * 12];
  int32_t sums[2][4] = {{sum, sum, sum, 7}, {sum, sum, sum, 7}};
  memset(x, a, sizeof(x));
  memset(y, b, sizeof(y));
  configure(2, 3, 16);
  _tile_loadd(0, sums, 16);
  _tile_loadd(1, x, 64);
  _tile_loadd(2, y, 12);
  multiply();
  _tile_stored(0, sums, 16);
  _tile_release();
  const bool alike = sums[0][0] == sums[0][2] && sums[0][0] == sums[1][0] && sums[1][0] == sums[1][2];
  return alike && sums[0][3] == 7 && sums[1][3] == 7 ? sums[1][1] : -1;
}

int bytes() {
  const auto both_signed = [] { _tile_dpbssd(0, 1, 2); };
  const auto first_signed = [] { _tile_dpbsud(0, 1, 2); };
  CHECK(quads(5, 0x80, 0xff, both_signed) == 5 + 64 * 128);
  CHECK(quads(5, 0x80, 0xff, first_signed) == 5 - 64 * 128 * 255);
  CHECK(quads(INT32_MAX, 0x7f, 0x7f, both_signed) == INT32_MIN + 64 * 127 * 127 - 1);  // there is no saturation
  return 0;
}

int zeros() {
  float sums[4] = {1, 2, 3, 4};
  configure(2, 2, 1);
  _tile_loadd(0, sums, 8);
  _tile_zero(0);
  _tile_stored(0, sums, 8);
  CHECK(sums[0] == 0 && sums[3] == 0);
  return 0;
}

}  // namespace

// The number of the first line that is wrong, else 0.
extern "C" __attribute__((visibility("default"))) int check() {
  const int wrong[] = {pairs(), bytes(), zeros()};
  for (int line : wrong) {
    if (line != 0) return line;
  }
  return 0;
}

extern "C" __attribute__((visibility("default"))) void fault(const char* name) {
  float sums[256] = {};
  if (strcmp(name, "released") == 0) configure(1, 1, 1), _tile_release();
  if (strcmp(name, "shapes") == 0) configure(1, 2, 3), _tile_dpbf16ps(0, 2, 1);
  if (strcmp(name, "wide") == 0) configure(1, 17, 1);
  _tile_loadd(0, sums, 4);
}
