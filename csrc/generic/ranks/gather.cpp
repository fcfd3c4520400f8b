// gather, hand_over, receive: the ops by which ranks and stages of one model exchange values.
#include "twostroke/context.h"
#include "twostroke/exchange.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/ops.h"
#include "twostroke/waiting.h"

namespace twostroke {
namespace {

// Returns the result of a call, and adds its time to the time that the exchange has spent.
template <class Call>
int32_t timed(ts_exchange& e, const Call& call) {
  const int64_t began = now_ns();
  const int32_t status = call();
  e.spent[0] += 1;
  e.spent[2] += now_ns() - began;
  return status;
}

}  // namespace

int32_t run(ts_context* context, const ts_gather_args& a) {
  ts_exchange* exchange = exchange_of(context);
  if (a.positions.data != nullptr && a.positions.count != a.out.rows) return TS_BAD_SHAPE;
  if (exchange != nullptr) {
    const bool two_codes = a.reader != nullptr && count_first(*a.reader, a.positions.data, a.positions.count) > 0;
    const int64_t group = two_codes ? 0 : rounded_group(a.reader, a.first, width_of(a.part));
    return timed(*exchange, [&] { return gather(*exchange, a.out, a.part, group); });
  }
  if (a.out.rows != a.part.rows || width_of(a.out) != width_of(a.part)) return TS_BAD_SHAPE;  // a rank alone has all columns
  copy_rows(a.part, a.out, 0, a.out.rows, 0);
  return TS_OK;
}

int32_t run(ts_context* context, const ts_hand_over_args& a) {
  ts_exchange* exchange = exchange_of(context);
  if (exchange == nullptr) return TS_BAD_POINTER;
  return timed(*exchange, [&] { return hand_over(*exchange, a.x); });
}

int32_t run(ts_context* context, const ts_receive_args& a) {
  ts_exchange* exchange = exchange_of(context);
  if (exchange == nullptr) return TS_BAD_POINTER;
  return timed(*exchange, [&] { return receive(*exchange, a.out); });
}

}  // namespace twostroke
