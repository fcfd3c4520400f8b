// Few rows: the weights are read once and wait for memory, so that how they are read counts more than how they are multiplied.
// On Intel's CPUs a thread reads several panels at once, a little of each in turn. Measured on 2 cores of a Xeon: four panels in steps
// of 1 KiB come 12% faster than one after the other, two 8% (docs/LOG.md): each page that is being read has hardware of its own that
// fetches ahead. AMD's (Zen 4) read one stretch after the other, and lose time wherever it ends: of a gated product a task takes several
// gate panels, which lie beside each other, and then the up panels, instead of going to and fro (one row of int4: 7% quicker).
// Knows: panels, groups. Must not know: the pool, vector instructions.
#include "twostroke/context.h"
#include "twostroke/linear_job.h"

namespace twostroke {
namespace {

constexpr int64_t kReadOn = 4, kTasksEach = 8;  // panels of a part; tasks that a thread should have at least

// The sums (panels, parts, rows, 64) of one part of one panel.
float* sums_of(const Job& job, int64_t panel, int64_t part, float* sums) { return sums + (panel * job.parts + part) * job.tokens * kPanel; }

void read_in_turn(const Job& job, int64_t first_panel, float* sums) {
  const int64_t count = job.panels_each * job.parts;
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

void read_on(const Job& job, int64_t first_panel, float* sums) {
  const GroupKernel kernel = job.w.kind == TS_W_INT4 ? int4_kernel(job.tokens) : int8_kernel(job.tokens);
  for (int64_t part = 0; part < job.parts; ++part) {
    for (int64_t i = 0; i < job.panels_each; ++i) {
      const int64_t at = part_panel(job, first_panel + i, part);
      const Panel panel = panel_of(job, at), next = panel_of(job, at + 1);
      for (int64_t g = 0; g < job.groups; ++g) {
        const Group group = group_of(job, panel, g, next.data);
        kernel(group.data, group, tile_rows(job, 0), sums_of(job, i, part, sums));
      }
    }
  }
}

int64_t panels_in_turn(const Job& job) {
  return streams(job.w.kind) % job.parts == 0 ? streams(job.w.kind) / job.parts : 0;
}

// Gated panels whose parts are two panels of W; fewer where tasks would become too few to even out the threads' speeds.
int64_t panels_read_on(const Job& job, int64_t threads) {
  if (job.gated == 0 || job.gated % kPanel != 0) return 0;
  const int64_t most = job.panels / (kTasksEach * threads);
  return most < 2 ? 0 : most < kReadOn ? most : kReadOn;
}

}  // namespace

void choose_reading(Job& job, const ts_context* context) {
  const bool in_turn = ts_reads_in_turn(context);
  job.stream = nullptr;
  job.multiply_block = in_turn ? block_group : block_group_unaided;
  if (job.tokens > kStreamRows) return;
  const int64_t panels = in_turn ? panels_in_turn(job) : panels_read_on(job, ts_threads(context));
  if (panels == 0) return;
  job.panels_each = panels;
  job.stream = in_turn ? read_in_turn : read_on;
}

void stream_panels(const Job& job, int64_t first_panel, int32_t thread) {
  float* sums = reinterpret_cast<float*>(job.room + thread * job.room_bytes);
  memset(sums, 0, static_cast<size_t>(job.panels_each * job.parts * job.tokens * kPanel) * 4);
  job.stream(job, first_panel, sums);
  for (int64_t i = 0; i < job.panels_each; ++i) {
    job.finish(job, first_panel + i, job.tokens, sums_of(job, i, 0, sums), job.tokens * kPanel, place_of(job, first_panel + i, 0));
  }
}

}  // namespace twostroke
