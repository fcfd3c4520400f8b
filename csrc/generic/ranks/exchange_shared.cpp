// The exchange through shared memory. A rank writes a piece into one of its two slots, raises its count, and waits for the counts of the
// others. After that wait all ranks have read the piece before it. So two slots are enough, and there is one wait for each piece.
// A rank that waits for ranks polls while the clock of the other rank's process runs, and then sleeps. Where ranks share cores, a rank that
// polls takes a core from a rank that computes. A rank that waits for another stage polls for a few microseconds only, because stages reach
// a piece at very different times.
#include <stdlib.h>
#include <string.h>

#include "twostroke/exchange.h"
#include "twostroke/waiting.h"

namespace twostroke {
namespace {

void raise(ts_exchange& e, std::atomic<uint32_t>& word, uint32_t to) {
  word.store(to);
  if (e.shared->sleepers.value.load() != 0) wake_shared(word);
}

// The clock of the work of another rank's process. For a rank of this process there is no such clock, and polling does not use one.
WorkClock clock_of(const ts_exchange& e, int32_t rank) {
  const uint32_t process = e.shared->process[rank].value.load(std::memory_order_relaxed);
  return process == 0 || process == own_process() ? kNoClock : clock_of_process(process);
}

// Polls for the count while the other rank works; see `spin`.
void poll_for(ts_exchange& e, std::atomic<uint32_t>& word, uint32_t wanted, int32_t rank) {
  const WorkClock clock = clock_of(e, rank);
  if (clock == kNoClock) return;
  const auto there = [&] { return static_cast<int32_t>(word.load(std::memory_order_acquire) - wanted) >= 0 || is_over(e); };
  spin(there, [&] { return clock; }, kWorkNs, 1);
}

// Waits until the count is `wanted` or beyond; counts wrap around. rank: the rank that has the count. together: whether it computes at the
// same time. limit_ns: the longest wait.
bool wait_for(ts_exchange& e, std::atomic<uint32_t>& word, uint32_t wanted, int32_t rank, bool together, int64_t limit_ns) {
  const int64_t began = now_ns();
  bool polled = !together;
  for (;;) {
    const uint32_t seen = word.load();
    if (static_cast<int32_t>(seen - wanted) >= 0) {
      count_wait(e, now_ns() - began);
      return true;
    }
    if (is_over(e)) return false;
    if (!polled && now_ns() - began > kSureNs) {
      polled = true;
      poll_for(e, word, wanted, rank);
      continue;
    }
    const int64_t waited = now_ns() - began;
    if (waited > limit_ns) {
      end(e);
      return false;
    }
    if (waited < kSpinNs) {
      pause_a_little();
      continue;
    }
    e.shared->sleepers.value.fetch_add(1);
    sleep_while_shared(word, seen, kNapNs);
    e.shared->sleepers.value.fetch_sub(1);
  }
}

char* slot(const ts_exchange& e, int32_t rank, uint32_t piece) {
  return e.slots + (rank * kSlots + piece % kSlots) * (static_cast<int64_t>(sizeof(PieceHead)) + e.piece_bytes);
}

void put(ts_exchange& e, const ts_value& value, int64_t group, int64_t first, int64_t count) {
  char* to = slot(e, e.rank, e.pieces);
  const PieceHead head = {e.number, count, width_of(value), group};
  memcpy(to, &head, sizeof(head));
  pack_rows(value, group, first, count, to + sizeof(head));
  raise(e, e.shared->written[e.rank].value, ++e.pieces);
  count_sent(e, static_cast<int64_t>(sizeof(head)) + count * row_bytes(head.width, group));
}

int64_t rows_of_a_piece(const ts_exchange& e, int64_t width, int64_t rows) {
  const int64_t most = e.piece_bytes / (4 * width);
  return most < rows ? most : rows;
}

// Copies the pieces of all ranks into rows of out. Returns false where the pieces do not make up out. part: this rank's own piece.
bool take_all(ts_exchange& e, const ts_value& out, const ts_value& part, int64_t first, int64_t count) {
  int64_t column = 0;
  for (int32_t r = 0; r < e.ranks; ++r) {
    const char* from = slot(e, r, e.pieces - 1);
    PieceHead head;
    memcpy(&head, from, sizeof(head));
    if (head.number != e.number || head.rows != count || !is_form(head.width, head.group) || head.width > width_of(out) - column) return false;
    if (count * row_bytes(head.width, head.group) > e.piece_bytes) return false;
    if (r == e.rank) copy_rows(part, out, first, count, column);
    else unpack_rows(from + sizeof(head), head.width, head.group, out, first, count, column);
    column += head.width;
  }
  return column == width_of(out);
}

}  // namespace

bool is_over(const ts_exchange& e) { return e.over.load() || (e.shared != nullptr && e.shared->over.value.load() != 0); }

int32_t gather(ts_exchange& e, const ts_value& out, const ts_value& part, int64_t group) {
  if (is_over(e)) return TS_RANK_LOST;
  if (out.rows != part.rows || width_of(part) > width_of(out) || (e.shared != nullptr && 4 * width_of(out) > e.piece_bytes)) return TS_BAD_SHAPE;
  if (e.shared == nullptr) return gather_by_sockets(e, out, part, group);
  const int64_t step = rows_of_a_piece(e, width_of(out), out.rows);
  for (int64_t first = 0; first < out.rows; first += step) {
    const int64_t count = out.rows - first < step ? out.rows - first : step;
    put(e, part, group, first, count);
    for (int32_t r = 0; r < e.ranks; ++r)
      if (r != e.rank && !wait_for(e, e.shared->written[r].value, e.pieces, r, true, e.limit_ns)) return TS_RANK_LOST;
    if (!take_all(e, out, part, first, count)) {
      end(e);
      return TS_BAD_SHAPE;
    }
  }
  return TS_OK;
}

int32_t hand_over(ts_exchange& e, const ts_value& value) {
  if (is_over(e)) return TS_RANK_LOST;
  if (e.rank + 1 >= e.ranks || (e.shared != nullptr && 4 * width_of(value) > e.piece_bytes)) return TS_BAD_SHAPE;
  if (e.shared == nullptr) return hand_over_by_sockets(e, value);
  const int64_t step = rows_of_a_piece(e, width_of(value), value.rows);
  for (int64_t first = 0; first < value.rows; first += step) {
    // Waits until the slot's piece before this one was read. The next stage may reach this plan much later, so there is no limit.
    if (!wait_for(e, e.shared->taken[e.rank + 1].value, e.pieces + 1 - static_cast<uint32_t>(kSlots), e.rank + 1, false, kNoLimit)) return TS_RANK_LOST;
    put(e, value, 0, first, value.rows - first < step ? value.rows - first : step);
  }
  return TS_OK;
}

int32_t receive(ts_exchange& e, const ts_value& out) {
  if (is_over(e)) return TS_RANK_LOST;
  if (e.rank < 1) return TS_BAD_SHAPE;
  if (e.shared == nullptr) return receive_by_sockets(e, out);
  for (int64_t first = 0; first < out.rows;) {
    if (!wait_for(e, e.shared->written[e.rank - 1].value, e.received + 1, e.rank - 1, false, e.limit_ns)) return TS_RANK_LOST;
    const char* from = slot(e, e.rank - 1, e.received);
    PieceHead head;
    memcpy(&head, from, sizeof(head));
    if (head.number != e.number || head.width != width_of(out) || head.group != 0 || head.rows < 1 || head.rows > out.rows - first) {
      end(e);
      return TS_BAD_SHAPE;
    }
    unpack_rows(from + sizeof(head), head.width, 0, out, first, head.rows, 0);
    first += head.rows;
    raise(e, e.shared->taken[e.rank].value, ++e.received);
  }
  return TS_OK;
}

}  // namespace twostroke

int64_t ts_exchange_bytes(int32_t ranks, int64_t piece_bytes) {
  using namespace twostroke;
  if (ranks < 1 || ranks > kMostRanks || piece_bytes < 64 || piece_bytes % 64 != 0) return TS_BAD_SHAPE;
  return static_cast<int64_t>(sizeof(SharedHead)) + ranks * kSlots * (static_cast<int64_t>(sizeof(PieceHead)) + piece_bytes);
}

ts_exchange* ts_exchange_shared(void* memory, int32_t rank, int32_t ranks, int64_t piece_bytes, int64_t limit_ns) {
  using namespace twostroke;
  if (memory == nullptr || rank < 0 || rank >= ranks || limit_ns < 1 || ts_exchange_bytes(ranks, piece_bytes) < 0) return nullptr;
  ts_exchange* e = static_cast<ts_exchange*>(calloc(1, sizeof(ts_exchange)));
  if (e == nullptr) return nullptr;
  e->rank = rank;
  e->ranks = ranks;
  e->limit_ns = limit_ns;
  e->shared = static_cast<SharedHead*>(memory);
  e->slots = static_cast<char*>(memory) + sizeof(SharedHead);
  e->piece_bytes = piece_bytes;
  e->shared->process[rank].value.store(own_process());
  return e;
}
