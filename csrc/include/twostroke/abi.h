// The C ABI between Python and the native kernels: plain C and raw pointers, the same at every instruction-set level. Every function checks
// its shapes and returns 0, or a negative ts_status; no function throws or aborts. src/twostroke/ops/operands.py defines the layouts of
// packed weights and KV pages. Strides count elements, not bytes. The arithmetic of one output row depends on that row alone: its sums have
// a fixed order, whatever `rows`, threads or pages.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)  // the library exports only what this header declares

#define TS_ABI_VERSION 25
#define TS_PANEL_ROWS 64
#define TS_PAGE_TOKENS 16

enum ts_status { TS_OK = 0, TS_BAD_SHAPE = -1, TS_BAD_FORMAT = -2, TS_BAD_INDEX = -3, TS_NO_MEMORY = -4, TS_BAD_POINTER = -5,
                 TS_BAD_VALUE = -6, TS_RANK_LOST = -7 };
enum ts_weight_kind { TS_W_F32 = 0, TS_W_BF16 = 1, TS_W_INT8 = 2, TS_W_INT4 = 3, TS_W_FLAT8 = 4, TS_W_FLAT4 = 5, TS_W_FLAT8_MIN = 6,
                      TS_W_SUPER8 = 7, TS_W_SUPER8_MIN = 8, TS_W_SUPER4_MIN = 9, TS_W_AFFINE4_128 = 10, TS_W_AFFINE4_64 = 11,
                      TS_W_AFFINE4_32 = 12, TS_W_AFFINE8_128 = 13, TS_W_AFFINE8_64 = 14, TS_W_AFFINE8_32 = 15,
                      TS_W_E2M1_32 = 16, TS_W_E2M1_16 = 17, TS_W_SUPER4_16 = 18, TS_W_SUPER4_MIN_16 = 19, TS_W_SUPER5_MIN = 20,
                      TS_W_SUPER6 = 21, TS_W_SUPER6_MIN = 22, TS_W_FLAT4_MIN = 23, TS_W_FLAT5 = 24, TS_W_FLAT5_MIN = 25,
                      TS_W_FLAT4_IQ = 26, TS_W_SUPER4_IQ = 27, TS_W_SUPER2 = 28, TS_W_SUPER2_MIN = 29, TS_W_SUPER3 = 30,
                      TS_W_LAST = TS_W_SUPER3 };
enum ts_kv_kind { TS_KV_F32 = 0, TS_KV_BF16 = 1, TS_KV_INT8 = 2, TS_KV_INT4 = 3 };

// The order in which few rows read the weights: one stretch of memory after the other, or several in turn. The bits are the same.
enum ts_reading { TS_READ_BY_MAKER = 0, TS_READ_ONE = 1, TS_READ_IN_TURN = 2 };

typedef struct ts_context ts_context;  // a thread pool and scratch memory; a context runs one call at a time

typedef struct {
  int32_t kind;  // a ts_weight_kind
  int32_t group;  // the columns that share a scale: 0 for floats, otherwise a multiple of 64, at most 1024
  int64_t rows, columns;  // the sizes before padding
  const void* data;         // packed, 64-byte aligned
  const uint16_t* scales;  // bf16 bits, packed; or NULL
  const float* bias;  // (rows,), or NULL
  int64_t experts;  // for a bank: how many such matrices lie one after the other in data, scales and bias; 0 for a matrix alone
  int64_t rotated;  // the columns that were multiplied together by a Hadamard matrix: 64 (rotate.h), or 0 for none
} ts_weight;

typedef struct {
  int32_t kind;  // a ts_kv_kind
  int32_t kv_heads;
  int32_t head_dim, value_dim;  // the dimensions of one head of K and of V
  int64_t num_pages;
  void* data;  // (num_pages, kv_heads, one head of a page); see attention/kv_page.h
  int64_t latent;  // with 1, V is the first value_dim dimensions of K and is not stored; kv_heads is then 1
} ts_kv_layer;

int32_t ts_abi_version(void);
const char* ts_level_name(void);  // the level of this library: "generic", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm"
// Bit n is set where this CPU runs level n. On x86, CPUID reports them: 0 generic, 1 avx2+fma+f16c, 2 avxvnni (with avx2), 3 avx512
// f/bw/vl/dq + vnni, 4 amx int8 + bf16 and avx512 bf16. A CPU may have 3 without 2. On aarch64, AT_HWCAP reports them: 0 generic, 1 neon
// (asimd), 2 dotprod (asimddp), 3 i8mm.
int32_t ts_levels(void);

ts_context* ts_context_create(int32_t num_threads);  // NULL where there is no memory; with 1, only the calling thread works
void ts_context_destroy(ts_context*);
int64_t ts_context_scratch_bytes(const ts_context*);
int32_t ts_context_read(ts_context*, int32_t reading);  // a ts_reading; a new context has the value that suits this CPU's maker

int32_t ts_linear(ts_context*, const ts_weight*, const float* x, int64_t x_stride, int64_t tokens, float* out, int64_t out_stride);
int32_t ts_linear_add(ts_context*, const ts_weight*, const float* x, int64_t x_stride, int64_t tokens, float* out, int64_t out_stride);
int32_t ts_linear_silu(ts_context*, const ts_weight*, const float* x, int64_t x_stride, int64_t tokens, float* out, int64_t out_stride);
// ts_linear_silu into middle (tokens, gate_up->rows / 2), then ts_linear_add from it. The call need not write middle.
int32_t ts_feed_forward(ts_context*, const ts_weight* gate_up, const ts_weight* down, const float* x, int64_t x_stride, int64_t tokens,
                        float* middle, int64_t middle_stride, float* out, int64_t out_stride);
int32_t ts_kv_write(ts_context*, const ts_kv_layer*, const float* k, int64_t k_stride, const float* v, int64_t v_stride,
                    const int32_t* slots, int64_t tokens);
// soft_cap: 0 for none. sinks, slopes: (heads,) or NULL. ahead: the positions after its own that a row sees; 0 for causal attention.
int32_t ts_attention(ts_context*, const ts_kv_layer*, const float* q, int64_t q_stride, int64_t heads, const int32_t* row_starts,
                     const int32_t* context_tokens, int64_t sequences, const int32_t* page_table, int64_t page_table_stride,
                     float scale, int32_t window, float soft_cap, const float* sinks, const float* slopes, int32_t ahead,
                     float* out, int64_t out_stride);

// Runs a step. Its calls come one after the other, each as its op's number and its operands as ops.h lays them out, with `count` words in
// all. It ends at the first call that is refused. *ran is set to the number of calls before that one.
int32_t ts_run(ts_context*, const int64_t* words, int64_t count, int64_t* ran);
// The name of the kernel that an op chooses for this number of rows, with weights and K and V of these kinds. It comes from the table by
// which the op chooses. NULL for an op that has one kernel for each format, and for arguments that are no case.
const char* ts_kernel(const ts_context*, int32_t op, int32_t weight_kind, int32_t kv_kind, int64_t rows, int64_t head_dim);
// the operands of an op by its number, such as "add: value out; value x;"; NULL beyond the last op
const char* ts_op_signature(int32_t op);

// An exchange connects the ranks of one model inside a step (gather, hand_over, receive). NULL where a size does not fit.
// ts_exchange_shared: through memory that all ranks map. It has ts_exchange_bytes bytes, which are zeros at first. piece_bytes is a
// multiple of 64 and holds at least one row of what the ranks exchange.
// ts_exchange_sockets: over connected stream sockets, one to each other rank. The exchange takes copies of the sockets. limit_ns: the
// longest wait for another rank; after it the call returns TS_RANK_LOST.
// ts_context_join: the ops of this context use the exchange, which must outlive the context; NULL for none.
// ts_exchange_begin: sets the number of the pass that follows. ts_exchange_end: ends all waits of all ranks for good; any thread may call
// it.
// ts_exchange_spent: 4 figures over all passes so far: calls, bytes sent, nanoseconds in calls, and nanoseconds of these in which the rank
// waited.
typedef struct ts_exchange ts_exchange;
int64_t ts_exchange_bytes(int32_t ranks, int64_t piece_bytes);
ts_exchange* ts_exchange_shared(void* memory, int32_t rank, int32_t ranks, int64_t piece_bytes, int64_t limit_ns);
ts_exchange* ts_exchange_sockets(const int32_t* sockets, int32_t rank, int32_t ranks, int64_t limit_ns);
void ts_exchange_begin(ts_exchange*, int64_t number);
void ts_exchange_end(ts_exchange*);
void ts_exchange_spent(const ts_exchange*, int64_t* figures);
void ts_exchange_destroy(ts_exchange*);
int32_t ts_context_join(ts_context*, ts_exchange*);

// The machine's limits. The caller measures the time. ts_limit_read: reads `bytes` bytes with all threads and returns a number that depends
// on them. ts_limit_rate: computes products on registers alone, of f32 or of the int8 kind of this level (ts_weight_kind). It returns the
// operations done, where a multiply-add is two, or a ts_status. ts_limit_spread: keeps all threads busy for a millisecond, and returns on
// how many different cores they were at its end.
int32_t ts_limit_spread(ts_context*);
int64_t ts_limit_read(ts_context*, const void* data, int64_t bytes);
int64_t ts_limit_rate(ts_context*, int32_t kind, int64_t rounds);

// Moves read-only mapped bytes into huge pages without a change of their address. Both numbers must be multiples of 2 MiB. Others may read
// meanwhile. After TS_NO_MEMORY everything is as it was.
int32_t ts_settle(void* address, int64_t bytes);

// Makes the system find memory for these bytes now, for all whole pages in them. It changes no byte, and others may write meanwhile.
// Returns TS_NO_MEMORY where the system cannot do it (before Linux 5.14, or without free memory).
int32_t ts_populate(void* address, int64_t bytes);

// Computes the weights of a row of logits for sampling, as whole numbers, bit for bit as ops/attention/token_weights.py. peak: the largest
// logit, which is finite. terms: the number of `coefficients` of 2^x. Only the calling thread works.
int32_t ts_weigh(const float* logits, int64_t count, double peak, double scale, const double* coefficients, int32_t terms, uint64_t* out);

// Packs weights at load. source: (rows, columns), row-major, float32 (source_kind 0) or bf16 bits (1). It is the row range [first_row,
// first_row + count) of the packed matrix. first_row is a multiple of TS_PANEL_ROWS, and so is count, unless the range ends at `rows`. The
// call writes the panels of those rows, with zeros as padding, into data and scales, which belong to the whole matrix. Integer kinds are
// symmetric, and their scales are searched as in ops/quant/codec.py, bit for bit. It returns TS_BAD_VALUE, and leaves data unspecified,
// where a source value is NaN, infinite, or of magnitude 2^60 or more.
int32_t ts_pack(ts_context*, const void* source, int32_t source_kind, int64_t source_stride, int64_t first_row, int64_t count,
                int32_t kind, int32_t group, int64_t rows, int64_t columns, void* data, uint16_t* scales, int64_t rotated);
// Packs rows of blocks, as GGUF files have them, to a stored kind that keeps their codes and scales: see ops/stored_layout.py. type: ggml's
// number. raw: (rows, row bytes). data: whole panels of these rows. Only the calling thread works. It returns TS_BAD_FORMAT for a type that
// is not in this list or that the kind does not hold. It returns TS_BAD_SHAPE where the bytes of either side do not fit rows and columns.
// It returns TS_BAD_VALUE, and leaves data unspecified, where a scale is NaN or infinite.
int32_t ts_pack_blocks(int32_t type, const uint8_t* raw, int64_t raw_bytes, int64_t rows, int64_t columns, int32_t kind, uint8_t* data,
                       int64_t data_bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
