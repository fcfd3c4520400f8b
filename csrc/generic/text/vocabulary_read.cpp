// Reads a vocabulary with merges from the JSON of a tokenizer.json: {"text": id, ...}, and [["left", "right"], ...] or ["left right", ...].
// What is not of this form is refused, and the caller then reads the file in another way.
#include <stdint.h>
#include <string.h>

#include "twostroke/vocabulary.h"

namespace twostroke {
namespace {

constexpr int64_t kLongestText = 4096;  // of a merged token
constexpr char kComment[] = "#version";  // the beginning of a line among merges with a space that the library leaves out
constexpr int64_t kCommentBytes = sizeof(kComment) - 1;

struct Reader {
  const uint8_t* at;
  const uint8_t* end;
};

void skip_blanks(Reader& r) {
  while (r.at < r.end && (*r.at == ' ' || *r.at == '\n' || *r.at == '\r' || *r.at == '\t')) ++r.at;
}

// Reads this character, with blanks before it.
bool take(Reader& r, uint8_t wanted) {
  skip_blanks(r);
  if (r.at == r.end || *r.at != wanted) return false;
  ++r.at;
  return true;
}

bool next_is(Reader& r, uint8_t wanted) {
  skip_blanks(r);
  return r.at < r.end && *r.at == wanted;
}

// The value of four hex digits, or -1.
int32_t hex4(Reader& r) {
  if (r.end - r.at < 4) return -1;
  int32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const uint8_t c = *r.at++;
    const uint8_t lower = c | 0x20;
    if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
    else if (lower >= 'a' && lower <= 'f') value = value * 16 + (lower - 'a' + 10);
    else return -1;
  }
  return value;
}

int64_t put_utf8(uint8_t* out, uint32_t code) {
  if (code < 0x80) {
    out[0] = static_cast<uint8_t>(code);
    return 1;
  }
  const int64_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int64_t i = bytes - 1; i > 0; --i, code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>((0xF0 << (4 - bytes)) | code);
  return bytes;
}

// Writes what stands after a backslash. Returns the bytes, or -1 for an escape that is none, or half of a surrogate pair.
int64_t put_escape(Reader& r, uint8_t* out) {
  if (r.at == r.end) return -1;
  const uint8_t kind = *r.at++;
  const char* const names = "\"\\/bfnrt";
  const char* const values = "\"\\/\b\f\n\r\t";
  for (int i = 0; i < 8; ++i) {
    if (kind == static_cast<uint8_t>(names[i])) {
      *out = static_cast<uint8_t>(values[i]);
      return 1;
    }
  }
  if (kind != 'u') return -1;
  int32_t code = hex4(r);
  if (code < 0 || (code >= 0xDC00 && code < 0xE000)) return -1;
  if (code >= 0xD800 && code < 0xDC00) {
    if (r.end - r.at < 6 || r.at[0] != '\\' || r.at[1] != 'u') return -1;
    r.at += 2;
    const int32_t low = hex4(r);
    if (low < 0xDC00 || low >= 0xE000) return -1;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  return put_utf8(out, static_cast<uint32_t>(code));
}

// Reads a string into `out`, which has room for as many bytes as the JSON has. Returns its bytes, or -1.
int64_t take_text(Reader& r, uint8_t* out, int64_t room) {
  if (!take(r, '"')) return -1;
  int64_t bytes = 0;
  while (r.at < r.end) {
    const uint8_t c = *r.at++;
    if (c == '"') return bytes;
    if (c < 0x20 || bytes + 4 > room) return -1;
    if (c != '\\') {
      out[bytes++] = c;
      continue;
    }
    const int64_t put = put_escape(r, out + bytes);
    if (put < 0) return -1;
    bytes += put;
  }
  return -1;
}

// Returns whether these bytes are UTF-8, without surrogates and without longer forms than needed.
bool is_utf8(const uint8_t* text, int64_t bytes) {
  for (int64_t i = 0; i < bytes;) {
    const uint8_t c = text[i++];
    if (c < 0x80) continue;
    const int more = c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
    if (more == 0 || i + more > bytes) return false;
    uint32_t code = c & (0x3F >> more);
    for (int k = 0; k < more; ++k, ++i) {
      if ((text[i] & 0xC0) != 0x80) return false;
      code = code << 6 | (text[i] & 0x3F);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) || (more == 3 && (code < 0x10000 || code > 0x10FFFF))) return false;
  }
  return true;
}

// Reads a whole number from 0 to 2^30. Returns -1 for anything else.
int32_t take_id(Reader& r) {
  skip_blanks(r);
  int64_t value = 0;
  const uint8_t* const begin = r.at;
  while (r.at < r.end && *r.at >= '0' && *r.at <= '9' && value < 1 << 30) value = value * 10 + (*r.at++ - '0');
  const bool whole = r.at > begin && r.at < r.end && (*begin != '0' || r.at == begin + 1);
  const bool ends = whole && (*r.at == ',' || *r.at == '}' || *r.at == ' ' || *r.at == '\n' || *r.at == '\r' || *r.at == '\t');
  return ends && value < 1 << 30 ? static_cast<int32_t>(value) : -1;
}

// Reads two texts, as a list or with a space between them. Returns the bytes of both together, 0 for a comment, or -1; *first gets those of
// the left one.
int64_t take_pair(Reader& r, bool listed, uint8_t* out, int64_t* first) {
  if (listed) {
    if (!take(r, '[')) return -1;
    *first = take_text(r, out, kLongestText);
    if (*first < 0 || !take(r, ',')) return -1;
    const int64_t second = take_text(r, out + *first, kLongestText - *first);
    return second < 0 || *first + second == 0 || !take(r, ']') ? -1 : *first + second;
  }
  const int64_t bytes = take_text(r, out, kLongestText);
  if (bytes < 1) return -1;
  if (bytes >= kCommentBytes && memcmp(out, kComment, kCommentBytes) == 0) return 0;
  int64_t spaces = 0;
  for (int64_t i = 0; i < bytes; ++i) {
    if (out[i] != ' ') continue;
    *first = i;
    ++spaces;
  }
  if (spaces != 1) return -1;
  const int64_t rest = bytes - *first - 1;
  memmove(out + *first, out + *first + 1, static_cast<size_t>(rest));
  return *first + rest;
}

}  // namespace
}  // namespace twostroke

int64_t ts_vocabulary_tokens(const uint8_t* json, int64_t bytes, uint8_t* texts, uint32_t* begins, int32_t* sizes, int32_t* ids,
                             int64_t capacity) {
  using namespace twostroke;
  if (json == nullptr || texts == nullptr || begins == nullptr || sizes == nullptr || ids == nullptr) return TS_BAD_POINTER;
  if (bytes < 0 || bytes > UINT32_MAX || capacity < 0) return TS_BAD_SHAPE;
  Reader r{json, json + bytes};
  int64_t count = 0, used = 0;
  if (!take(r, '{')) return TS_BAD_FORMAT;
  for (bool more = !next_is(r, '}'); more; more = take(r, ',')) {
    if (count == capacity) return TS_BAD_SHAPE;
    const int64_t size = take_text(r, texts + used, bytes - used);
    if (size < 0 || size > kLongestText || !is_utf8(texts + used, size) || !take(r, ':')) return TS_BAD_FORMAT;
    const int32_t id = take_id(r);
    if (id < 0) return TS_BAD_FORMAT;
    begins[count] = static_cast<uint32_t>(used);
    sizes[count] = static_cast<int32_t>(size);
    ids[count++] = id;
    used += size;
  }
  if (!take(r, '}')) return TS_BAD_FORMAT;
  return count;
}

int32_t ts_vocabulary_index(const ts_vocabulary* vocabulary, const uint32_t* begins, const int32_t* sizes, const int32_t* ids,
                            int64_t count) {
  using namespace twostroke;
  if (vocabulary == nullptr || begins == nullptr || sizes == nullptr || ids == nullptr) return TS_BAD_POINTER;
  const ts_vocabulary& v = *vocabulary;
  if (count < 0 || v.num_slots <= count || (v.num_slots & (v.num_slots - 1)) != 0) return TS_BAD_SHAPE;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids[i];
    if (id < 0 || id >= v.num_ids) return TS_BAD_INDEX;
    if (v.sizes[id] >= 0) return TS_BAD_VALUE;
    v.begins[id] = begins[i];
    v.sizes[id] = sizes[i];
    int32_t* const slot = text_slot(v, v.texts + begins[i], sizes[i]);
    if (slot[1] >= 0) return TS_BAD_VALUE;
    slot[1] = id;
  }
  return TS_OK;
}

int64_t ts_vocabulary_merges(const ts_vocabulary* vocabulary, const uint8_t* json, int64_t bytes) {
  using namespace twostroke;
  if (vocabulary == nullptr || json == nullptr) return TS_BAD_POINTER;
  const ts_vocabulary& v = *vocabulary;
  if (bytes < 0 || v.num_merges < 1 || (v.num_merges & (v.num_merges - 1)) != 0) return TS_BAD_SHAPE;
  Reader r{json, json + bytes};
  if (!take(r, '[')) return TS_BAD_FORMAT;
  const bool listed = next_is(r, '[');
  uint8_t text[kLongestText];
  int64_t rank = 0;
  for (bool more = !next_is(r, ']'); more; more = take(r, ','), ++rank) {
    int64_t first = 0;
    const int64_t both = take_pair(r, listed, text, &first);
    if (both < 0) return TS_BAD_FORMAT;
    if (both == 0) continue;
    if (rank + 1 >= v.num_merges) return TS_BAD_SHAPE;
    const int32_t left = token_of(v, text, first), right = token_of(v, text + first, both - first), id = token_of(v, text, both);
    if (left < 0 || right < 0 || id < 0) return TS_BAD_INDEX;
    int32_t* const slot = merge_slot(v, left, right);
    slot[0] = left;
    slot[1] = right;
    slot[2] = static_cast<int32_t>(rank);  // of two merges of the same tokens the later one counts, as in the library
    slot[3] = id;
  }
  if (!take(r, ']')) return TS_BAD_FORMAT;
  return rank;
}
