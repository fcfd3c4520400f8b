// One tile of latents. It is widened to floats once for all heads, as K by dimensions. Its first dimensions are then transposed to V by
// positions.
#pragma once
#include "twostroke/attention/widened.h"

namespace twostroke {

typedef float Lanes16 __attribute__((vector_size(64), aligned(4)));

// a and b are rows i and i + kStep of a 16 x 16 matrix. Swaps the off-diagonal blocks of kStep lanes between them.
template <int kStep>
TS_VECTOR_INLINE void exchange(Lanes16& a, Lanes16& b) {
#define TS_FIRST(i) ((i) / kStep % 2 == 0 ? (i) : (i) - kStep + 16)
#define TS_SECOND(i) ((i) / kStep % 2 == 0 ? (i) + kStep : (i) + 16)
#define TS_ALL(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
  const Lanes16 first = __builtin_shufflevector(a, b, TS_ALL(TS_FIRST)), second = __builtin_shufflevector(a, b, TS_ALL(TS_SECOND));
#undef TS_ALL
#undef TS_SECOND
#undef TS_FIRST
  a = first;
  b = second;
}

template <int kStep>
TS_VECTOR_INLINE void exchange_rows(Lanes16 (&rows)[16]) {
  TS_EVERY
  for (int i = 0; i < 16; ++i) {
    if (i / kStep % 2 == 0) exchange<kStep>(rows[i], rows[i + kStep]);
  }
}

// Transposes 16 rows of 16 floats, so that to[j][i] = from[i][j].
inline void transpose_16(const float* from, int64_t from_step, float* to, int64_t to_step) {
  Lanes16 rows[16];
  TS_EVERY
  for (int i = 0; i < 16; ++i) memcpy(&rows[i], from + i * from_step, sizeof rows[i]);
  exchange_rows<8>(rows);
  exchange_rows<4>(rows);
  exchange_rows<2>(rows);
  exchange_rows<1>(rows);
  TS_EVERY
  for (int i = 0; i < 16; ++i) memcpy(to + i * to_step, &rows[i], sizeof rows[i]);
}

// Copies the first dimensions of K (dimensions, kTile) to V (kTile, padded). The padding has whatever values K has there.
inline void values_of_keys(const float* keys, int pages, int64_t padded, float* values) {
  for (int p = 0; p < pages; ++p) {
    for (int64_t d = 0; d < padded; d += kLanes)
      transpose_16(keys + d * kTile + p * kLanes, kTile, values + p * kLanes * padded + d, padded);
  }
}

// Widens one quad of 16 positions with these scales. Dimension d + i of position p is q[p * kQuad + i] - zero.
inline void widen_quad(const uint8_t* q, int32_t zero, const float* scales, float* to) {
  for (int i = 0; i < kQuad; ++i) {
    for (int p = 0; p < TS_PAGE_TOKENS; ++p) to[i * kTile + p] = static_cast<float>(q[p * kQuad + i] - zero) * scales[p];
  }
}

// The quads of a stored quad, one after the other.
inline void quads_of(const WholeByte* stored, uint8_t (&q)[2 * 64]) { memcpy(q, stored, 64); }
inline void quads_of(const Nibbles* stored, uint8_t (&q)[2 * 64]) {
  for (int i = 0; i < 64; ++i) {
    q[i] = stored[i].bits & 15;
    q[64 + i] = stored[i].bits >> 4;
  }
}

// Widens K of `pages` pages of whole numbers to float32 (dim rounded up to quads, kTile). A quad with dimensions of both parts is widened
// twice.
template <typename Element>
void widen_latents(const KVLayout& layout, const Tile& tile, int64_t dim, int64_t latent, float* to) {
  constexpr int64_t kWidth = kQuad * Element::kParts;
  constexpr int32_t kZero = Element::kParts == 1 ? 128 : 8;
  for (int p = 0; p < tile.pages; ++p) {
    float scales[2][kLanes], apart[kQuad * kTile];
    uint16_t bits[2 * kLanes];
    memcpy(bits, layout.key_scales(tile.keys[p]), sizeof bits);
    for (int part = 0; part < 2; ++part) store(scales[part], load_bf16(bits + part * kLanes));
    const Element* stored = reinterpret_cast<const Element*>(tile.keys[p]);
    for (int64_t d = 0; d < dim; d += kWidth, stored += kQuad * TS_PAGE_TOKENS) {
      uint8_t q[2 * 64];
      quads_of(stored, q);
      for (int part = 0; part < Element::kParts; ++part) {
        const int64_t first = d + part * kQuad;
        if (first >= dim) break;
        widen_quad(q + part * 64, kZero, scales[first >= latent], to + first * kTile + p * kLanes);
        if (first >= latent || first + kQuad <= latent) continue;
        widen_quad(q + part * 64, kZero, scales[1], apart);
        for (int64_t i = latent - first; i < kQuad; ++i) memcpy(to + (first + i) * kTile + p * kLanes, apart + i * kTile, 64);
      }
    }
  }
}

template <typename Element>
void widen_latent_tile(const KVLayout& layout, const ts_kv_layer* layer, const Tile& tile, float* to) {
  if constexpr (kIsPair<Element> || std::is_same<Element, float>::value) {
    widen_keys(view_of<Element>(tile, 0, TS_PAGE_TOKENS), tile.pages, layer->head_dim, to);
  } else {
    widen_latents<Element>(layout, tile, layer->head_dim, layer->value_dim, to);
  }
}

// Finds which positions of a tile token t of a block chose.
inline void find_chosen(const AttentionJob* job, const Block& block, const Tile& tile, int64_t t, bool (&kept)[kTile]) {
  const float* chosen = job->chosen + (block.first_token + t) * job->chosen_stride;
  const float first = static_cast<float>(tile.start);
  int64_t low = 0, high = job->choices;  // fewer than `low` positions lie before the tile
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const bool before = chosen[middle] >= 0.0f && chosen[middle] < first;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  memset(kept, 0, sizeof kept);
  for (; low < job->choices && chosen[low] >= first && chosen[low] < first + kTile; ++low)
    kept[static_cast<int64_t>(chosen[low] - first)] = true;
}

// Writes `filled` into the scores of positions that a row's token did not choose, also where these scores are NaN.
inline void keep_chosen(const AttentionJob* job, const Block& block, const Tile& tile, float filled, float* scores) {
  bool kept[kTile];
  for (int64_t t = 0; t < block.tokens; ++t) {
    find_chosen(job, block, tile, t, kept);
    for (int64_t g = 0; g < job->group; ++g) {
      float* row = scores + (t * job->group + g) * kTile;
      for (int i = 0; i < kTile; ++i) row[i] = kept[i] ? row[i] : filled;
    }
  }
}

// Adds weights times V where V is not finite. Because 0 times such a number is not 0, each token gets zeros where it did not choose. K is
// not read any more, so V's copy takes its room.
inline void add_apart(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const int64_t padded = job->value_padded;
  float* room = block.work.keys;
  const TileView<float> values = widened(room, TS_PAGE_TOKENS * padded, padded);
  bool kept[kTile];
  for (int64_t t = 0; t < block.tokens; ++t) {
    find_chosen(job, block, tile, t, kept);
    for (int i = 0; i < kTile; ++i) {
      if (kept[i]) memcpy(room + i * padded, block.work.values + i * padded, static_cast<size_t>(padded) * sizeof(float));
      else memset(room + i * padded, 0, static_cast<size_t>(padded) * sizeof(float));
    }
    for (int64_t r = t * job->group; r < (t + 1) * job->group; ++r) {
      const Span seen = tile.spans[r];
      if (seen.empty()) continue;
      value_rows<float, kWideRows, kWideVectors>(block.work.scores + r * kTile, block.work.rescale + r, 1, values, seen.begin, seen.end, padded,
                                                 partial.sum + r * padded, padded);
    }
  }
}

// Positions that only some rows chose have weights of exactly 0 in the others.
inline void add_chosen(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const int64_t padded = job->value_padded;
  keep_chosen(job, block, tile, 0.0f, block.work.scores);
  const TileView<float> values = widened(block.work.values, TS_PAGE_TOKENS * padded, padded);
  finite_values(values, tile.first, tile.last, padded) ? add_block(job, block, tile, partial) : add_apart(job, block, tile, partial);
}

template <typename Element>
void run_latent_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const Workspace& work = block.work;
  const int64_t padding = job->key_padded - job->layer->head_dim;
  memset(work.keys + job->layer->head_dim * kTile, 0, static_cast<size_t>(padding * kTile) * sizeof(float));
  widen_latent_tile<Element>(layout, job->layer, tile, work.keys);
  values_of_keys(work.keys, tile.pages, job->value_padded, work.values);
  score_block(job, block, head, tile);
  if (job->chosen != nullptr) keep_chosen(job, block, tile, -INFINITY, work.scores);
  soften(work.scores, tile.spans, block.rows, partial, work.rescale, work.found);
  job->chosen != nullptr ? add_chosen(job, block, tile, partial) : add_block(job, block, tile, partial);
}

inline AttentionWay latent_way(int32_t kv_kind) {
  switch (kv_kind) {
    case TS_KV_F32: return {"run_latent_tile<float>", run_latent_tile<float>};
    case TS_KV_BF16: return {"run_latent_tile<Bf16Pair>", run_latent_tile<Bf16Pair>};
    case TS_KV_INT8: return {"run_latent_tile<WholeByte>", run_latent_tile<WholeByte>};
    default: return {"run_latent_tile<Nibbles>", run_latent_tile<Nibbles>};
  }
}

}  // namespace twostroke
