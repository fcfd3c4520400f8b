// How a product of a given number of rows is made: the one table by which kernels are chosen and named.
#include "twostroke/kernel_case.h"
#include "twostroke/linear_job.h"
#include "twostroke/stored.h"

namespace twostroke {
namespace {

// Names are those of the functions that multiply; tests look for them in the sources.
constexpr Way kFloats = {"float_kernel", nullptr, nullptr};
#if defined(TS_STORED_AS_THEY_LIE)
constexpr Way kStored = {"multiply_stored_rows", nullptr, stored_by_group};
constexpr Way kStoredFew = {"stored_few_rows", read_on, nullptr};
#else
constexpr Way kStored = {"unpack_stored, then multiply_stored", nullptr, stored_by_group};
#endif
#if defined(TS_LEVEL_AVX512)
constexpr Way kInTurn = {"stream_kernel; few_rows_kernel for the last panels", read_in_turn, nullptr};
constexpr Way kFewRows = {"few_rows_kernel", read_on, nullptr};
constexpr Way kBlocks = {"block_group", nullptr, blocks_by_group};
#if !defined(TS_LEVEL_AMX)
constexpr Way kSeveralRows = {"several_rows_kernel", read_several_on, nullptr};
#endif
#else
constexpr Way kInt8 = {"int8_kernel", nullptr, int8_by_group};
constexpr Way kUnpackedInt4 = {"unpack_int4, then int8_kernel", nullptr, unpacked_by_group};
constexpr Way kInt4 = {"int4_kernel", nullptr, int4_by_group};
#endif

}  // namespace

const Way& way_of(int32_t kind, int64_t rows, bool in_turn) {
  if (!is_integer_kind(kind)) return kFloats;
#if defined(TS_STORED_AS_THEY_LIE)
  if (is_stored_kind(kind) && rows <= kStoredFewRows) return kStoredFew;
#endif
  if (is_stored_kind(kind)) return kStored;
#if defined(TS_LEVEL_AVX512)
  if (rows <= kStreamRows) return in_turn ? kInTurn : kFewRows;
#if !defined(TS_LEVEL_AMX)
  if (!in_turn && rows <= read_on_rows(kind)) return kSeveralRows;
#endif
  return kBlocks;
#else
  (void)in_turn;
  if (kind == TS_W_INT8) return kInt8;
  return rows <= kInt4Rows ? kInt4 : kUnpackedInt4;
#endif
}

const char* product_kernel(const KernelCase& asked) { return way_of(asked.weight_kind, asked.rows, asked.in_turn).name; }

}  // namespace twostroke
