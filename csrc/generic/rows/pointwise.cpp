// pointwise: runs each step of a program over a stretch of a row. Each element is computed by itself, so that a row's bits depend on that
// row alone.
#include "twostroke/rows/pointwise.h"

#include "twostroke/rows/activation.h"
#include "twostroke/rows/elements.h"
#include "twostroke/tasks.h"
#include "twostroke/rows/xielu.h"

namespace twostroke {
namespace {

constexpr int64_t kStretch = 512;  // elements that go through all steps before the next elements; a multiple of kLanes
constexpr int64_t kPart = 4096;  // elements of a task in rows as long as logits; a multiple of kStretch
constexpr int64_t kLongRow = 16384;

// Elements [first, first + count) of a row.
struct Stretch {
  const float *from, *y;
  float* to;
  int64_t first, count;
};

void take_step(const ts_pointwise_args& args, int64_t step, const Stretch& s) {
  const auto each = [&](const auto& function) { each_vector(s.to, s.count, function, s.from); };
  const auto with = [&](const float* other, const auto& function) { each_vector(s.to, s.count, function, s.from, other); };
  const Vec a = set1(static_cast<float>(args.a)), b = set1(static_cast<float>(args.b));
  const float* numbers = args.numbers.data;
  switch (step) {
    case kTimesA: return each([&](Vec v) { return v * a; });
    case kTimesB: return each([&](Vec v) { return v * b; });
    case kWithinA: return each([&](Vec v) { return max(zero() - a, min(a, v)); });  // NaN stays NaN, because it is the second operand
    case kTanh: return each([](Vec v) { return tanh_ratio(v); });
    case kTimesNumbers:
      if (args.numbers.length == 1) return each([&](Vec v) { return v * set1(numbers[0]); });
      return with(numbers + s.first, [](Vec v, Vec number) { return v * number; });
    case kMinusNumbers: return with(numbers + s.first, [](Vec v, Vec number) { return v - number; });
    case kBetweenNumbers: return each([&](Vec v) { return min(set1(numbers[1]), max(set1(numbers[0]), v)); });
    case kXielu: return each(Xielu(numbers));
    case kPlusY: return with(s.y, [](Vec v, Vec y) { return v + y; });
    default: with_activation(step - kFirstActivation, each);
  }
}

// Changes elements [first, end) of a row.
void change(const ts_pointwise_args& a, int64_t row, int64_t first, int64_t end) {
  const ts_value& read = a.x.data == nullptr ? a.out : a.x;
  for (int64_t at = first; at < end; at += kStretch) {
    float* to = a.out.data + row * a.out.stride + at;
    const float* y = a.y.data == nullptr ? nullptr : a.y.data + row * a.y.stride + at;
    Stretch s = {read.data + row * read.stride + at, y, to, at, end - at < kStretch ? end - at : kStretch};
    for (int64_t left = a.program; left != 0; left >>= 8) {
      take_step(a, left & 255, s);
      s.from = to;
    }
  }
}

void change_row(const ts_pointwise_args& a, int64_t row) { change(a, row, 0, width_of(a.out)); }

int64_t parts_of(const ts_pointwise_args& a) { return (width_of(a.out) + kPart - 1) / kPart; }

void change_part(const ts_pointwise_args& a, int64_t index) {
  const int64_t parts = parts_of(a), first = index % parts * kPart, width = width_of(a.out);
  change(a, index / parts, first, first + kPart < width ? first + kPart : width);
}

}  // namespace

int32_t run(ts_context* context, const ts_pointwise_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (width_of(a.out) < kLongRow) share_tasks<change_row>(context, a.out.rows, a);
  else share_tasks<change_part>(context, a.out.rows * parts_of(a), a);
  return TS_OK;
}

}  // namespace twostroke
