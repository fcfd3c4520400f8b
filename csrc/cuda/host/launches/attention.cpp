// The launchers of kv_write and attention. Slots and page tables are checked on the host, where the step was written.
#include "twostroke/attention/kv_page.h"
#include "twostroke/cuda/host/launch.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {
namespace {

int32_t check_attention(const ts_attention_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent != 0 || a.out.rows != a.q.rows || a.out.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim || a.q.heads % a.layer->kv_heads != 0) return TS_BAD_SHAPE;
  if (a.q.dim > kMostDim || a.out.dim > kMostDim || a.window <= INT32_MIN || a.window > INT32_MAX || a.ahead < 0 || a.ahead > INT32_MAX) return TS_BAD_SHAPE;
  if (!(a.soft_cap >= 0.0)) return TS_BAD_VALUE;
  const ts_vector vectors[] = {a.sinks, a.slopes};
  for (const ts_vector& each : vectors)
    if (each.data != nullptr && each.length != a.q.heads) return TS_BAD_SHAPE;
  return TS_OK;
}

// the most query rows of a sequence for blocks of segments, over int8 and int4; with more, a warp goes over the whole context
constexpr int32_t kFewQueryRows = 64;
constexpr int64_t kPartialBytes = 32 << 20;  // the most bytes of partial results at once, unless a single tile of rows has more

// The sequences that a kernel takes, by their rows in this step: more than `above` and at most `few`. columns: the number of pairs of a row
// and a query head that share a KV head and a block, or a warp.
struct Way {
  KernelNumber kernel;
  int32_t threads, above, few;
  int64_t columns;
};

Way few_rows(int32_t kv_kind) {
  switch (kv_kind) {
    case TS_KV_F32: return {kKernel_attention_f32, kThreads, 0, 1, kOneRowColumns};
    case TS_KV_BF16: return {kKernel_attention_bf16, kThreads, 0, 1, kOneRowColumns};
    case TS_KV_INT8: return {kKernel_attention_int8, kValueThreads, 0, kFewQueryRows, kWholeColumns};
    default: return {kKernel_attention_int4, kValueThreads, 0, kFewQueryRows, kWholeColumns};
  }
}

Way many_rows(int32_t kv_kind) {
  switch (kv_kind) {
    case TS_KV_F32: return {kKernel_attention_prompt_f32, kPromptThreads, 1, INT32_MAX, kFloatColumns};
    case TS_KV_BF16: return {kKernel_attention_prompt_bf16, kPromptThreads, 1, INT32_MAX, kFloatColumns};
    case TS_KV_INT8: return {kKernel_attention_prompt_int8, kPromptThreads, kFewQueryRows, INT32_MAX, kPromptColumns};
    default: return {kKernel_attention_prompt_int4, kPromptThreads, kFewQueryRows, INT32_MAX, kPromptColumns};
  }
}

// The longest context, rounded up to a power of two, so that it is the same for many steps.
int64_t bounded_context(const ts_sequences& s) {
  int64_t longest = 1, bound = kSegment;
  for (int64_t i = 0; i < s.count; ++i) longest = s.context_tokens[i] > longest ? s.context_tokens[i] : longest;
  while (bound < longest) bound *= 2;
  return bound;
}

// Counts the tiles of rows, with room for the last tile of each sequence, which may not be full.
int64_t share_rows(const ts_attention_args& a, const Way& way, AttentionArgs* args) {
  const int64_t group = a.q.heads / a.layer->kv_heads;
  args->above = way.above;
  args->few = way.few;
  args->chunks = static_cast<int32_t>(divide_up(group, way.columns));
  args->together = way.few > 1 && args->ends == nullptr && a.q.rows > a.batch.count && group < way.columns ? static_cast<int32_t>(way.columns / group) : 1;
  return args->together == 1 ? a.q.rows : a.q.rows / args->together + a.batch.count;
}

// Returns how a prompt's tiles lie in the memory that a block shares. There are no stages where tiles do not fit, where V cannot be copied
// 16 bytes at a time, or where sums of 256 dimensions are not exact as floats.
StageShape stage_of(const ts_kv_layer& layer) {
  StageShape shape = {};
  const bool nibbles = layer.kind == TS_KV_INT4;
  const int32_t dim = layer.head_dim, values = layer.value_dim < kPromptDims ? layer.value_dim : kPromptDims;
  if (!has_scales(layer.kind) || dim > 256 || layer.value_dim % values != 0 || (!nibbles && values % 4 != 0)) return shape;
  const KVLayout layout(&layer);
  shape.steps = static_cast<int32_t>(divide_up(dim, 32));
  shape.key_rows = static_cast<int32_t>(layout.key_bytes / 64);
  shape.value_row = nibbles ? (values + 31) / 32 * 4 : values / 4;
  shape.row_bytes = static_cast<int32_t>(4 * layout.value_row_bytes);
  shape.values = 4 * shape.key_rows;
  shape.scales = shape.values + 4 * shape.value_row;
  shape.page = (shape.scales + 4 + 6) / 8 * 8 + 1;
  shape.tiles = kPromptThreads * shape.steps;
  shape.stages = kPromptRoom < shape.tiles ? 0 : (kPromptRoom - shape.tiles) / (4 * shape.page);
  shape.stages = shape.stages > 2 ? 2 : shape.stages;
  shape.units = nibbles ? (values + 31) / 32 * 2 : (values + 15) / 16;
  shape.swap = shape.value_row % 8 == 0 ? 2 : 0;
  shape.key_bytes = static_cast<int32_t>(layout.key_bytes);
  shape.scale_offset = static_cast<int32_t>(layout.key_bytes + TS_PAGE_TOKENS * layout.value_row_bytes);
  shape.head_bytes = layout.head_bytes;
  return shape;
}

// Launches blocks that go over the whole context.
int32_t start_whole(ts_context& device, const ts_attention_args& a, const Way& way, AttentionArgs args) {
  const int64_t group = a.q.heads / a.layer->kv_heads;
  args.above = way.above;
  args.few = way.few;
  args.chunks = static_cast<int32_t>(divide_up(group, way.columns));
  args.together = way.threads / kWarp * static_cast<int32_t>(group < way.columns ? way.columns / group : 1);
  args.prompt_blocks = a.q.rows / args.together + a.batch.count;
  const int64_t parts = a.layer->kv_heads * args.chunks * divide_up(a.layer->value_dim, kPromptDims);
  return start(device, way.kernel, args.prompt_blocks * parts, way.threads, &args);
}

// Divides the dimensions of V into slices for `blocks` blocks over int8 and int4. There are more slices where they give work to more
// multiprocessors; each of them makes the weights again.
void share_values(const ts_context& device, const ts_kv_layer& layer, int64_t blocks, AttentionArgs* args) {
  const int64_t units = divide_up(layer.value_dim, 32);
  args->units = args->score_columns <= kMostSummed / 128 ? 4 : 2;
  const auto too_many = [&] { return layer.value_dim % (32 * args->units) != 0 || blocks * units < device.multiprocessors * args->units; };
  while (args->units > 1 && too_many()) args->units /= 2;
  args->slices = static_cast<int32_t>(divide_up(units, args->units));
}

// Launches the kernels of some tiles of rows: scores, where they are apart, sums over segments, and the merge of a row's segments.
int32_t start_tiles_of(ts_context& device, const ts_kv_layer& layer, const Way& way, int64_t some, AttentionArgs& args) {
  const int64_t blocks = some * layer.kv_heads * args.chunks * args.segments;
  int32_t status = TS_OK;
  args.slices = 1;
  if (has_scales(layer.kind)) {
    share_values(device, layer, blocks, &args);
    const KernelNumber scores = layer.kind == TS_KV_INT8 ? kKernel_attention_scores_int8 : kKernel_attention_scores_int4;
    status = start(device, scores, blocks * kScoreParts, kScoreThreads, &args);
  }
  if (status == TS_OK) status = start(device, way.kernel, blocks * args.slices, way.threads, &args);
  const int32_t merge_threads = static_cast<int32_t>(divide_up(partial_floats(layer.value_dim), kWarp) * kWarp);
  if (status == TS_OK && args.segments > 1) status = start(device, kKernel_attention_merge, some * args.together * args.heads, merge_threads, &args);
  return status;
}

// Launches blocks of one segment each. It does this for some tiles of rows at a time.
int32_t start_segments(ts_context& device, const ts_attention_args& a, const Way& way, AttentionArgs args) {
  const int64_t tiles = share_rows(a, way, &args);
  int64_t segments = bounded_context(a.batch) / kSegment;
  if (a.window != 0 && args.ends == nullptr) {  // the positions that a tile of rows sees lie in at most this many segments
    const int64_t seen = (a.window > 0 ? a.window : -a.window) + a.ahead + args.together, most = divide_up(seen, kSegment) + 1;
    segments = most < segments ? most : segments;
  }
  args.segments = static_cast<int32_t>(segments);
  const int64_t group = args.heads / a.layer->kv_heads, columns = args.chunks > 1 ? way.columns : args.together * group;
  args.score_columns = static_cast<int32_t>(columns);
  const int64_t of_partials = segments == 1 ? 0 : args.together * args.heads * segments * partial_floats(a.layer->value_dim) * 4;
  const int64_t of_scores = has_scales(a.layer->kind) ? a.layer->kv_heads * args.chunks * segments * columns * kSegment * 4 : 0;
  const int64_t tile_bytes = of_partials + of_scores;
  int64_t at_once = tile_bytes == 0 ? tiles : kPartialBytes / tile_bytes;
  at_once = at_once < 1 ? 1 : at_once < tiles ? at_once : tiles;
  int32_t status = TS_OK;
  if (tile_bytes > 0) {  // scores first, because they are whole fours
    const uint64_t scratch = scratch_of(device, at_once * tile_bytes, &status);
    args.scores = reinterpret_cast<float*>(scratch);
    args.partials = reinterpret_cast<float*>(scratch + static_cast<uint64_t>(at_once * of_scores));
  }
  for (; args.first_tile < tiles && status == TS_OK; args.first_tile += at_once) {
    status = start_tiles_of(device, *a.layer, way, tiles - args.first_tile < at_once ? tiles - args.first_tile : at_once, args);
  }
  return status;
}

int32_t start_attention(ts_context& device, const ts_attention_args& a, AttentionArgs args) {
  if (args.places.place_of == nullptr && args.ends == nullptr) args.stage = stage_of(*a.layer);
  const bool whole = args.stage.stages > 0;
  const Way many = many_rows(a.layer->kind);
  Way few = few_rows(a.layer->kind);
  if (has_scales(a.layer->kind) && !whole) few.few = INT32_MAX;
  bool any_few = false, any_many = false, one_each = true;
  for (int64_t s = 0; s < a.batch.count; ++s) {
    const int32_t rows = a.batch.row_starts[s + 1] - a.batch.row_starts[s];
    any_few = any_few || rows <= few.few;
    any_many = any_many || (rows > many.above && rows > few.few);
    one_each = one_each && rows == 1;
  }
  args.one_each = one_each ? 1 : 0;
  int32_t status = TS_OK;
  if (any_many) status = whole ? start_whole(device, a, many, args) : start_segments(device, a, many, args);
  return any_few && status == TS_OK ? start_segments(device, a, few, args) : status;
}

// Launches attention over pages. ends: for span_attention, the position at which each row ceases to see; else NULL.
int32_t launch_with(ts_context& device, const ts_attention_args& a, const Places& places, const ts_indices* ends = nullptr) {
  int32_t status = check_attention(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  status = check_pages(a.batch, *a.layer, a.q.rows, a.window);
  if (status != TS_OK) return status;
  AttentionArgs args = {};
  args.layer = *a.layer;
  args.pages = page_layout(*a.layer);
  args.out = a.out.data;
  args.q = a.q.data;
  args.sinks = a.sinks.data;
  args.slopes = a.slopes.data;
  args.q_stride = a.q.stride;
  args.out_stride = a.out.stride;
  args.heads = a.q.heads;
  args.group = static_cast<int32_t>(a.q.heads / a.layer->kv_heads);
  args.scale = static_cast<float>(a.scale);
  args.soft_cap = static_cast<float>(a.soft_cap);
  args.window = static_cast<int32_t>(a.window);
  args.ahead = static_cast<int32_t>(a.ahead);
  args.places = places;
  if (ends != nullptr) {
    args.ends = mirrored(device, ends->data, ends->count);
    if (args.ends == nullptr) return TS_BAD_POINTER;
  }
  status = mirror_sequences(device, a.batch, &args);
  if (status != TS_OK) return status;
  return start_attention(device, a, args);
}

}  // namespace

KernelNumber attention_kernel(int32_t kv_kind) { return few_rows(kv_kind).kernel; }

int32_t check_pages(const ts_sequences& s, const ts_kv_layer& layer, int64_t all_rows, int64_t window) {
  if (s.count > 0 && s.row_starts[s.count] != all_rows) return TS_BAD_INDEX;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t rows = static_cast<int64_t>(s.row_starts[i + 1]) - s.row_starts[i], end = s.context_tokens[i];
    const int64_t pages = divide_up(end, TS_PAGE_TOKENS);
    if (s.row_starts[i] < 0 || rows < 0 || rows > end || pages > s.max_pages) return TS_BAD_SHAPE;
    // Pages before the window were given back, so their entries have no meaning.
    const int64_t seen = first_seen(window, end - rows);
    for (int64_t p = seen / TS_PAGE_TOKENS; p < pages; ++p) {
      const int32_t page = s.page_table[i * s.max_pages + p];
      if (page < 0 || page >= layer.num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

int32_t launch(ts_context& device, const ts_kv_write_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent != 0 || a.k.rows != a.v.rows || a.slots.count != a.k.rows) return TS_BAD_SHAPE;
  if (a.k.heads != a.layer->kv_heads || a.k.dim != a.layer->head_dim) return TS_BAD_SHAPE;
  if (a.v.heads != a.layer->kv_heads || a.v.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  if (!in_range(a.slots, a.layer->num_pages * TS_PAGE_TOKENS)) return TS_BAD_INDEX;
  KVWriteArgs args = {{a, *a.layer}, page_layout(*a.layer)};
  return mirror(device, args.slots) ? start(device, kKernel_kv_write, a.k.rows * a.k.heads, kGroupThreads, &args) : TS_BAD_POINTER;
}

int32_t launch(ts_context& device, const ts_attention_args& a) { return launch_with(device, a, {}); }

int32_t launch(ts_context& device, const ts_span_attention_args& a) {
  if (a.ends.count != a.q.rows) return TS_BAD_SHAPE;
  return launch_with(device, {a.out, a.q, a.layer, a.batch, a.scale, a.window, a.soft_cap, {}, {}, 0}, {}, &a.ends);
}

// Operands on the device are not checked here. A kernel computes NaN for a score whose place does not exist.
int32_t launch(ts_context& device, const ts_placed_attention_args& a) {
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = check_shapes(a);
  if (status != TS_OK) return status;
  const Places places = {a.places.data, a.table.data, a.by_row.data, a.by_key.data, a.places.length / 2, places_of(a), a.by_row.stride, a.by_key.stride};
  return launch_with(device, {a.out, a.q, a.layer, a.batch, a.scale, 0, 0.0, {}, {}, a.ahead}, places);
}

int32_t launch(ts_context& device, const ts_place_scores_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.x.dim > kMostDim) return TS_BAD_SHAPE;
  return start(device, kKernel_place_scores, divide_up(a.x.rows, kPlaceRows) * a.x.heads * parts_of(a.out.dim), kThreads, &a);
}

}  // namespace cuda
}  // namespace twostroke
