// Few rows: the weights are read once and wait for memory, so that how they are read counts more than how they are multiplied.
// On Intel's CPUs a thread reads several panels at once, a little of each in turn. Measured on 2 cores of a Xeon: four panels in steps
// of 1 KiB come 12% faster than one after the other, two 8%: each page that is being read has hardware of its own that
// fetches ahead. AMD's (Zen 4) read one stretch after the other, and lose time wherever it ends or the reader pauses: a kernel takes a
// whole panel (a group of columns at a time, with what lay between: 4% slower where memory gives 31 GB/s, 5 to 10% where it gives 52),
// and of a gated product a task takes several gate panels, which lie next to each other, and then the up panels, instead of going to
// and fro (one row of int4: 7% quicker).
#include "twostroke/context.h"
#include "twostroke/linear_job.h"

namespace twostroke {
namespace {

constexpr int64_t kReadOn = 4, kTasksEach = 8;  // panels of a part; tasks that a thread should have at least

// The sums (panels, parts, rows, 64) of one part of one panel.
float* sums_of(const Job& job, int64_t panel, int64_t part, float* sums) { return sums + (panel * job.parts + part) * job.tokens * kPanel; }

void read_streams(const Job& job, int64_t first_panel, float* sums) {
  const int64_t count = job.panels_each * job.parts;
  memset(sums, 0, static_cast<size_t>(count * job.tokens * kPanel) * 4);
  Panel panels[kMostStreams], next[kMostStreams];
  for (int64_t s = 0; s < count; ++s) {
    const int64_t panel = first_panel + s / job.parts, part = s % job.parts;
    panels[s] = panel_of(job, part_panel(job, panel, part));
    next[s] = panel_of(job, part_panel(job, panel + job.panels_each, part));
  }
  for (int64_t g = 0; g < job.groups; ++g) {
    Group groups[kMostStreams];
    for (int64_t s = 0; s < count; ++s) groups[s] = group_of(job, panels[s], g, next[s].data);
    stream_kernel(job.w.kind, job.tokens)(groups, tile_rows(job, 0), sums, job.tokens * kPanel);
  }
}

void read_panels(const Job& job, TileKernel kernel, int64_t first_panel, int64_t count, float* sums) {
  const TileRows rows = tile_rows(job, 0);
  for (int64_t part = 0; part < job.parts; ++part) {
    for (int64_t i = 0; i < count; ++i) {
      if (part >= last_part(job, first_panel + i)) continue;
      kernel(panel_of(job, part_panel(job, first_panel + i, part)), rows, sums_of(job, i, part, sums));
    }
  }
}

// Panels that are read in turn: all of a task together.
int64_t panels_in_turn(const Operands& job) {
  return streams(job.w.kind) % job.parts == 0 ? streams(job.w.kind) / job.parts : 1;
}

// As many as leave tasks enough to even out the threads' speeds.
int64_t panels_read_on(const Operands& job, int64_t beside, int64_t threads) {
  const int64_t most = job.panels * beside / (kTasksEach * threads);
  return most < 1 ? 1 : most < kReadOn ? most : kReadOn;
}

}  // namespace

void choose_reading(const Operands& job, const ts_context* context, int64_t beside, Schedule& to) {
  to.in_turn = ts_reads_in_turn(context);
  to.way = &way_of(job.w.kind, job.tokens, to.in_turn);
  to.panels_each = 1;
  if (to.way->few != nullptr) to.panels_each = to.in_turn ? panels_in_turn(job) : panels_read_on(job, beside, ts_threads(context));
}

void read_in_turn(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  if (count * job.parts != streams(job.w.kind)) return read_on(job, first_panel, count, sums);
  read_streams(job, first_panel, sums);
}

void read_on(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  read_panels(job, few_rows_kernel(job.w.kind, job.tokens, job.in_turn), first_panel, count, sums);
}

void read_several_on(const Job& job, int64_t first_panel, int64_t count, float* sums) {
  read_panels(job, several_rows_kernel(job.w.kind, job.tokens), first_panel, count, sums);
}

void few_rows(const Job& job, int64_t first_panel, int64_t count, int32_t thread, const Place& out) {
  float* sums = reinterpret_cast<float*>(job.room + thread * job.room_bytes);
  job.way->few(job, first_panel, count, sums);
  for (int64_t i = 0; i < count; ++i) {
    job.finish(job, first_panel + i, job.tokens, sums_of(job, i, 0, sums), job.tokens * kPanel, {out.at + i * kPanel, out.stride});
  }
}

}  // namespace twostroke
