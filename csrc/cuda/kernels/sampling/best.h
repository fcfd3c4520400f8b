// The results that every row has: its likeliest token, and the logits of that token.
#pragma once
#include "likely.h"

namespace twostroke {
namespace cuda {

// The number of groups with keys of a row before changes.
TS_DEVICE_INLINE int raw_groups(const SampleArgs& args, int64_t row) { return args.rows[args.first + row].changed ? kTell : kDraw; }

// Writes the largest logits of a row, and the token where none is drawn. Returns the largest logit after all changes. All threads of a
// block call it.
TS_DEVICE_INLINE float tell_best(const SampleArgs& args, int64_t row, uint64_t best) {
  const SampleRow& asked = args.rows[args.first + row];
  const uint64_t raw_best = asked.changed ? Likeliest(args, row, kTell).best : best;
  const float* raw = raw_of(args, row);
  const float found = drawn_from(args, row)[number_in(best)];
  if (thread_index() != 0) return found;
  SampledRow& told = args.told[args.first + row];
  told.raw_best = raw[number_in(raw_best)];
  told.best = found;
  const int32_t token = asked.given > 0 ? asked.given - 1 : static_cast<int32_t>(number_in(best));
  told.token = token;
  told.raw = raw[token];
  told.total = 0;
  return found;
}

}  // namespace cuda
}  // namespace twostroke
