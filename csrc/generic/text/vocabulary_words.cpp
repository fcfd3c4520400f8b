// Byte-pair encoding: a word is divided into the tokens of its characters, and the pair of neighbours with the lowest rank is merged, from
// the left, as long as there is one. The rules are those of the `tokenizers` library (models/bpe/word.rs), entry by entry of its queue.
#include <stdint.h>
#include <string.h>

#include "twostroke/vocabulary.h"

namespace twostroke {
namespace {

constexpr int32_t kEndOfWord = 256, kLastOne = 257, kFirstAdded = 258;  // pieces that are no byte; kLastOne: byte 1, then the end of a word
constexpr int32_t kGone = -2;

struct Symbol {
  int32_t id, before, after;  // after: -1 at the end, kGone where the symbol became a part of another
};

struct Entry {
  int32_t rank, place, id;
};

bool sooner(const Entry& a, const Entry& b) { return a.rank != b.rank ? a.rank < b.rank : a.place < b.place; }

// A heap whose first entry is the soonest.
struct Queue {
  Entry* entries;
  int64_t count;
};

void push(Queue& q, Entry entry) {
  int64_t at = q.count++;
  for (int64_t above = (at - 1) / 2; at > 0 && sooner(entry, q.entries[above]); at = above, above = (at - 1) / 2) q.entries[at] = q.entries[above];
  q.entries[at] = entry;
}

Entry pop(Queue& q) {
  const Entry first = q.entries[0], last = q.entries[--q.count];
  int64_t at = 0;
  for (int64_t below = 1; below < q.count; below = 2 * at + 1) {
    if (below + 1 < q.count && sooner(q.entries[below + 1], q.entries[below])) ++below;
    if (!sooner(q.entries[below], last)) break;
    q.entries[at] = q.entries[below];
    at = below;
  }
  if (q.count > 0) q.entries[at] = last;
  return first;
}

void push_merge(const ts_vocabulary& v, Queue& q, const Symbol* symbols, int32_t left, int32_t right) {
  const int32_t* const found = merge_slot(v, symbols[left].id, symbols[right].id);
  if (found[0] >= 0) push(q, {found[2], left, found[3]});
}

// Merges symbols in place, and returns how many ids were written to `out`.
int64_t merge_all(const ts_vocabulary& v, Symbol* symbols, int32_t count, Queue q, int32_t* out) {
  for (int32_t i = 0; i + 1 < count; ++i) push_merge(v, q, symbols, i, i + 1);
  while (q.count > 0) {
    const Entry top = pop(q);
    Symbol& left = symbols[top.place];
    if (left.after < 0) continue;
    const int32_t next = left.after;
    const int32_t* const found = merge_slot(v, left.id, symbols[next].id);
    if (found[0] < 0 || found[3] != top.id) continue;  // one of the two was merged meanwhile
    left.id = top.id;
    left.after = symbols[next].after;
    symbols[next].after = kGone;
    if (left.after >= 0) symbols[left.after].before = top.place;
    if (left.before >= 0) push_merge(v, q, symbols, left.before, top.place);
    if (left.after >= 0) push_merge(v, q, symbols, top.place, left.after);
  }
  int64_t made = 0;
  for (int32_t at = count > 0 ? 0 : -1; at >= 0; at = symbols[at].after) out[made++] = symbols[at].id;
  return made;
}

int64_t character_bytes(uint8_t first) { return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4; }

bool has_bytes(const ts_vocabulary& v, const uint8_t* text, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (v.bytes[text[i]] < 0) return false;
  }
  return true;
}

// Writes the first symbols of a word, and returns how many. A character that has neither a token nor bytes is left out.
int64_t divide(const ts_vocabulary& v, const uint8_t* word, int64_t bytes, Symbol* symbols) {
  int64_t count = 0;
  const auto add = [&](int32_t id) {
    symbols[count] = {id, static_cast<int32_t>(count - 1), static_cast<int32_t>(count + 1)};
    ++count;
  };
  for (int64_t at = 0; at < bytes;) {
    const int64_t whole = character_bytes(word[at]), size = whole > bytes - at ? bytes - at : whole;
    const int32_t id = token_of(v, word + at, size);
    if (id >= 0) add(id);
    for (int64_t i = 0; i < size && id < 0 && has_bytes(v, word + at, size); ++i) add(v.bytes[word[at + i]]);
    at += size;
  }
  if (count > 0) symbols[count - 1].after = -1;
  return count;
}

// Writes the ids of a word, and returns how many.
int64_t encode_word(const ts_vocabulary& v, const uint8_t* word, int64_t bytes, Symbol* symbols, Entry* entries, int32_t* out) {
  if (v.whole_words != 0) {
    const int32_t id = token_of(v, word, bytes);
    if (id >= 0) {
      *out = id;
      return 1;
    }
  }
  const int64_t count = divide(v, word, bytes, symbols);
  return merge_all(v, symbols, static_cast<int32_t>(count), {entries, 0}, out);
}

}  // namespace
}  // namespace twostroke

int32_t ts_vocabulary_find(const ts_vocabulary* vocabulary, const uint8_t* text, int64_t bytes) {
  if (vocabulary == nullptr || text == nullptr || bytes < 0) return TS_BAD_POINTER;
  return twostroke::token_of(*vocabulary, text, bytes);
}

int64_t ts_vocabulary_encode(const ts_vocabulary* vocabulary, const int32_t* pieces, int64_t count, const int32_t* added, int64_t num_added,
                             int32_t* scratch, int32_t* out) {
  using namespace twostroke;
  if (vocabulary == nullptr || pieces == nullptr || added == nullptr || scratch == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (count < 0 || count > INT32_MAX / TS_WORD_SCRATCH) return TS_BAD_SHAPE;
  Symbol* const symbols = reinterpret_cast<Symbol*>(scratch);
  Entry* const entries = reinterpret_cast<Entry*>(scratch + 3 * count);
  uint8_t* const word = reinterpret_cast<uint8_t*>(scratch + 12 * count);
  int64_t bytes = 0, made = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t piece = pieces[i];
    if (piece < 0 || piece - kFirstAdded >= num_added) return TS_BAD_INDEX;
    if (piece < kEndOfWord) word[bytes++] = static_cast<uint8_t>(piece);
    if (piece == kLastOne) word[bytes++] = 1;
    if (piece < kEndOfWord) continue;
    if (bytes > 0) {
      made += encode_word(*vocabulary, word, bytes, symbols, entries, out + made);
      bytes = 0;
    }
    if (piece >= kFirstAdded) out[made++] = added[piece - kFirstAdded];
  }
  if (bytes != 0) return TS_BAD_FORMAT;
  return made;
}
