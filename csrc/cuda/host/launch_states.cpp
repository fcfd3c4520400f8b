// The launchers of ops that go through sequences token by token, and of gated_norm, which comes after them in models. Slots and rows are
// checked on the host, where the step was written.
#include "twostroke/cuda/host/launch.h"
#include "twostroke/cuda/machine/words.h"
#include "twostroke/states.h"

namespace twostroke {
namespace cuda {
namespace {

static_assert(kMostHeadRows == twostroke::kMostHeadRows, "kernels have room for every head");

// Checks slots and rows, and writes into *args where kernels find them.
int32_t fill(ts_context& device, const ts_state& state, const ts_indices& slots, const ts_sequences& batch, int64_t rows, int64_t elements,
             StateArgs* args) {
  const int32_t status = check_states(state, slots, batch, rows, elements);
  if (status != TS_OK || batch.count == 0) return status;
  *args = {state.data, mirrored(device, slots.data, slots.count), mirrored(device, batch.row_starts, batch.count + 1), state.stride};
  return args->slots == nullptr || args->row_starts == nullptr ? TS_BAD_POINTER : TS_OK;
}

constexpr int64_t kChunkTokens = 8;

// Cuts sequences into chunks of tokens. Only the first chunk of a sequence reads the state, because a chunk has at least `width` - 1 tokens
// or is the whole sequence.
void cut(const ts_sequences& batch, ConvArgs* args) {
  int64_t most = 1;
  for (int64_t s = 0; s < batch.count; ++s) {
    const int64_t tokens = batch.row_starts[s + 1] - batch.row_starts[s];
    most = tokens > most ? tokens : most;
  }
  args->tokens = args->width - 1 > kChunkTokens ? most : kChunkTokens;
  args->chunks = divide_up(most, args->tokens);
}

// Fills in the operands that both scans of RWKV have.
template <class Args>
WkvArgs wkv_args(const Args& a) {
  WkvArgs args = {};
  args.out = a.out.data;
  args.r = a.r.data;
  args.w = a.w.data;
  args.k = a.k.data;
  args.v = a.v.data;
  args.weight = a.weight.data;
  args.bias = a.bias.data;
  args.out_stride = a.out.stride;
  args.r_stride = a.r.stride;
  args.w_stride = a.w.stride;
  args.k_stride = a.k.stride;
  args.v_stride = a.v.stride;
  args.heads = a.v.heads;
  args.width = a.v.dim;
  args.eps = static_cast<float>(a.eps);
  return args;
}

// Returns the threads of a block with one thread for each column. It is the smallest possible number, because the columns of short heads
// then fit into shared memory.
int32_t column_threads(int64_t width) {
  if (width <= kGroupThreads) return kGroupThreads;
  return width <= kNormThreads ? kNormThreads : kMostHeadRows;
}

template <class Args>
int32_t start_wkv(ts_context& device, KernelNumber kernel, const Args& a, WkvArgs& args) {
  int32_t status = check_wkv(a);
  if (status == TS_OK) status = fill(device, a.state, a.slots, a.batch, a.v.rows, width_of(a.v) * a.v.dim, &args.state);
  return status != TS_OK ? status : start(device, kernel, a.batch.count * a.v.heads, column_threads(a.v.dim), &args);
}

}  // namespace

int32_t launch(ts_context& device, const ts_short_conv_args& a) {
  const int64_t channels = width_of(a.x);
  if (a.activation < 0 || a.activation >= kActivationKinds) return TS_BAD_FORMAT;
  if (channels < 1 || a.out.rows != a.x.rows || width_of(a.out) != channels) return TS_BAD_SHAPE;
  if (a.taps.length < 2 * channels || a.taps.length % channels != 0) return TS_BAD_SHAPE;
  if (a.bias.data != nullptr && a.bias.length != channels) return TS_BAD_SHAPE;
  ConvArgs args = {{}, a.out.data, a.x.data, a.taps.data, a.bias.data, a.out.stride, a.x.stride, channels, a.taps.length / channels, a.activation,
                   parts_of(channels), 0, 0};
  const int32_t status = fill(device, a.state, a.slots, a.batch, a.x.rows, a.taps.length - channels, &args.state);
  if (status != TS_OK) return status;
  cut(a.batch, &args);
  return start(device, kKernel_short_conv, a.batch.count * args.parts * args.chunks, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_compress_args& a) {
  int32_t status = check_compress(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  const int64_t dim = width_of(a.out), series = width_of(a.x) / (2 * dim);
  const int32_t* contexts = mirrored(device, a.batch.context_tokens, a.batch.count);
  if (contexts == nullptr) return TS_BAD_POINTER;
  CompressArgs args = {{}, a.out.data, a.x.data, a.bias.data, contexts, a.out.stride, a.x.stride, dim, series, a.rate, parts_of(dim)};
  status = fill(device, a.state, a.slots, a.batch, a.x.rows, 3 * series * dim, &args.state);
  return status != TS_OK ? status : start(device, kKernel_compress, a.batch.count * args.parts, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_rg_lru_args& a) {
  int32_t status = check_rg_lru(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  const int64_t channels = width_of(a.x);
  const int32_t* contexts = mirrored(device, a.batch.context_tokens, a.batch.count);
  if (contexts == nullptr) return TS_BAD_POINTER;
  RgLruArgs args = {{},       a.out.data,   a.x.data,   a.input_gate.data,   a.recurrent_gate.data,   a.rates.data, contexts,
                    a.out.stride, a.x.stride, a.input_gate.stride, a.recurrent_gate.stride, channels, parts_of(channels)};
  status = fill(device, a.state, a.slots, a.batch, a.x.rows, channels, &args.state);
  return status != TS_OK ? status : start(device, kKernel_rg_lru, a.batch.count * args.parts, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_mlstm_args& a) {
  int32_t status = check_mlstm(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  const int64_t heads = a.q.heads, rows = a.q.dim, width = a.v.dim;
  MlstmArgs args = {{}, a.out.data, a.q.data, a.k.data, a.v.data, a.input_gate.data, a.forget_gate.data, a.out.stride, a.q.stride, a.k.stride,
                    a.v.stride, a.input_gate.stride, a.forget_gate.stride, heads, rows, width, 1.0f / __builtin_sqrtf(static_cast<float>(rows)),
                    static_cast<float>(a.eps)};
  status = fill(device, a.state, a.slots, a.batch, a.q.rows, heads * (rows * width + rows + 1), &args.state);
  return status != TS_OK ? status : start(device, kKernel_mlstm, a.batch.count * heads, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_wkv4_args& a) {
  int32_t status = check_wkv4(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  const int64_t channels = width_of(a.k);
  const int32_t* contexts = mirrored(device, a.batch.context_tokens, a.batch.count);
  if (contexts == nullptr) return TS_BAD_POINTER;
  Wkv4Args args = {{},           a.out.data, a.k.data,   a.v.data, a.first.data,       a.decay.data,  contexts,
                   a.out.stride, a.k.stride, a.v.stride, channels, parts_of(channels), kBeforeTheFirst};
  status = fill(device, a.state, a.slots, a.batch, a.k.rows, 3 * channels, &args.state);
  return status != TS_OK ? status : start(device, kKernel_wkv4, a.batch.count * args.parts, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_selective_scan_args& a) {
  const int64_t channels = width_of(a.x), numbers = width_of(a.b), rows = a.x.rows;
  if (channels < 1 || numbers < 1 || width_of(a.out) != channels || width_of(a.dt) != channels || width_of(a.c) != numbers) return TS_BAD_SHAPE;
  if (a.out.rows != rows || a.dt.rows != rows || a.b.rows != rows || a.c.rows != rows) return TS_BAD_SHAPE;
  if (a.decay.length != numbers * channels || a.skip.length != channels) return TS_BAD_SHAPE;
  SelectiveArgs args = {{},           a.out.data,  a.x.data,    a.dt.data,  a.b.data,   a.c.data, a.decay.data, a.skip.data,
                        a.out.stride, a.x.stride,  a.dt.stride, a.b.stride, a.c.stride, channels, numbers,      parts_of(channels)};
  const int32_t status = fill(device, a.state, a.slots, a.batch, rows, numbers * channels, &args.state);
  return status != TS_OK ? status : start(device, kKernel_selective_scan, a.batch.count * args.parts, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_ssd_scan_args& a) {
  const int64_t heads = a.x.heads, rows = a.x.rows;
  if (!same_shape(a.out, a.x) || !same_shape(a.b, a.c) || a.b.rows != rows || a.dt.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.x.dim < 1 || a.b.dim < 1 || a.b.heads < 1 || heads % a.b.heads != 0 || width_of(a.dt) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.skip.length != heads || a.dt_bias.length != heads) return TS_BAD_SHAPE;
  SsdArgs args = {{},         a.out.data,  a.x.data, a.b.data, a.c.data, a.dt.data, a.decay.data, a.skip.data, a.dt_bias.data, a.out.stride, a.x.stride,
                  a.b.stride, a.c.stride,  a.dt.stride, heads, a.x.dim, a.b.heads, a.b.dim, divide_up(a.x.dim, kWarp),
                  static_cast<float>(a.dt_least), static_cast<float>(a.dt_most)};
  const int32_t status = fill(device, a.state, a.slots, a.batch, rows, heads * a.b.dim * a.x.dim, &args.state);
  return status != TS_OK ? status : start(device, kKernel_ssd_scan, a.batch.count * heads * args.parts, kWarp, &args);
}

int32_t launch(ts_context& device, const ts_delta_rule_args& a) {
  const int64_t heads = a.v.heads, rows = a.v.rows, gates = width_of(a.a);
  if (!same_shape(a.out, a.v) || !same_shape(a.q, a.k) || a.k.rows != rows || a.a.rows != rows || a.b.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.v.dim < 1 || a.k.dim < 1 || a.k.dim > kMostStateRows || a.k.heads < 1 || heads % a.k.heads != 0) return TS_BAD_SHAPE;
  if ((gates != heads && gates != heads * a.k.dim) || width_of(a.b) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.dt_bias.length != gates) return TS_BAD_SHAPE;
  DeltaArgs args = {{},         a.out.data, a.q.data,   a.k.data, a.v.data,  a.a.data, a.b.data, a.decay.data,  a.dt_bias.data, a.out.stride, a.q.stride,
                    a.k.stride, a.v.stride, a.a.stride, a.b.stride, heads, a.k.heads, a.k.dim,  a.v.dim,       gates / heads, divide_up(a.v.dim, kWarp),
                    static_cast<float>(a.strength),
                    1.0f / __builtin_sqrtf(static_cast<float>(a.k.dim)), static_cast<float>(a.lowest)};
  const int32_t status = fill(device, a.state, a.slots, a.batch, rows, heads * a.k.dim * a.v.dim, &args.state);
  return status != TS_OK ? status : start(device, kKernel_delta_rule, a.batch.count * heads * args.parts, kWarp, &args);
}

int32_t launch(ts_context& device, const ts_token_shift_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.x.rows || width < 1 || width_of(a.out) % width != 0 || a.mix.length != width_of(a.out)) return TS_BAD_SHAPE;
  ConvArgs args = {{}, a.out.data, a.x.data, a.mix.data, nullptr, a.out.stride, a.x.stride, width, width_of(a.out) / width, 0, parts_of(width),
                   0, 0};
  const int32_t status = fill(device, a.state, a.slots, a.batch, a.x.rows, width, &args.state);
  if (status != TS_OK) return status;
  cut(a.batch, &args);
  return start(device, kKernel_token_shift, a.batch.count * args.parts * args.chunks, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_wkv6_args& a) {
  if (a.first.length != width_of(a.v)) return TS_BAD_SHAPE;
  WkvArgs args = wkv_args(a);
  args.first = a.first.data;
  return start_wkv(device, kKernel_wkv6, a, args);
}

int32_t launch(ts_context& device, const ts_wkv7_args& a) {
  const int64_t width = width_of(a.v);
  if (!same_shape(a.a, a.v)) return TS_BAD_SHAPE;
  if (a.removal.length != width || a.growth.length != width || a.bonus.length != width) return TS_BAD_SHAPE;
  WkvArgs args = wkv_args(a);
  args.a = a.a.data;
  args.a_stride = a.a.stride;
  args.removal = a.removal.data;
  args.growth = a.growth.data;
  args.bonus = a.bonus.data;
  return start_wkv(device, kKernel_wkv7, a, args);
}

int32_t launch(ts_context& device, const ts_gated_norm_args& a) {
  const int64_t width = width_of(a.out);
  if (a.activation < 0 || a.activation >= kActivationKinds) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || a.out.rows != a.gate.rows || width_of(a.x) != width || width_of(a.gate) != width) return TS_BAD_SHAPE;
  if (a.groups < 1 || width < 1 || width % a.groups != 0) return TS_BAD_SHAPE;
  const int64_t inside = width / a.groups;
  if (a.weight.length != width && a.weight.length != inside) return TS_BAD_SHAPE;
  const GatedNormArgs args = {a.out.data, a.x.data, a.gate.data, a.weight.data, a.out.stride, a.x.stride, a.gate.stride, a.groups, inside,
                              a.weight.length == inside ? 0 : inside, a.activation, a.gate_first, static_cast<float>(a.eps)};
  return start(device, kKernel_gated_norm, a.out.rows * a.groups, row_threads(inside), &args);
}

}  // namespace cuda
}  // namespace twostroke
