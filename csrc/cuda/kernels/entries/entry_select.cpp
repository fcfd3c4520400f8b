// entry_select: the scores of all entries that a row sees. A block has one row and a tile of entries. index_choose then finds the largest.
#include "twostroke/cuda/attention/entries.h"
#include "twostroke/cuda/attention/sequences.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(entry_scores, SelectArgs) {
  const int64_t place = block_index() / args.tiles, row = args.first_row + place, first = block_index() % args.tiles * kEntryTile;
  const RowPlace of = place_of_row(args.row_starts, args.context_tokens, args.sequences, row);
  const int64_t left = of.positions / args.rate - first, count = left < kEntryTile ? left : kEntryTile;
  if (count <= 0) return;
  const EntryLayout layout(&args.layer, args.dim, args.rate);
  const int32_t* pages = args.page_table + of.sequence * args.table_stride;
  const bool own = thread_index() < count;
  float sum = 0.0f;
  for (int64_t head = 0; head < args.heads; head += kEntryHeads) {
    const float* q = args.q + row * args.q_stride + head * args.dim;
    const int64_t left_heads = args.heads - head, heads = left_heads < kEntryHeads ? left_heads : kEntryHeads;
    sum_entries<kEntryHeads>(q, heads, args.dim, count, [&](int64_t e) { return EntryNumbers(layout, pages, first + e); });
    barrier();
    for (int64_t h = 0; own && h < heads; ++h) {
      const float found = product_with(thread_index(), h);
      sum += args.weights[row * args.weights_stride + head + h] * (found < 0.0f ? 0.0f : found);
    }
    barrier();
  }
  if (own) args.scores[place * args.positions + first + thread_index()] = sum;
}

}  // namespace cuda
}  // namespace twostroke
