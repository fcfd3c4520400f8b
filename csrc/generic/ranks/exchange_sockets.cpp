// The exchange over connections: each rank has one to every other rank. All rows of a call go as one message, which is their sizes and then
// the rows. A rank sends to all and receives from all at the same time. Otherwise two ranks could wait for each other with full buffers.
#include <stdlib.h>
#include <string.h>

#include "twostroke/exchange.h"
#include "twostroke/waiting.h"

namespace twostroke {
namespace {

constexpr int64_t kHead = sizeof(PieceHead);

bool make_room(Peer& peer, int64_t bytes) {
  if (bytes <= peer.room_bytes) return true;
  char* larger = static_cast<char*>(realloc(peer.room, static_cast<size_t>(bytes)));
  if (larger == nullptr) return false;
  peer.room = larger;
  peer.room_bytes = bytes;
  return true;
}

// Moves as many bytes as it can without a wait. Returns 1 where bytes moved, 0 where none did, and -1 where the connection is gone or the
// message is not valid.
int32_t send_some(const ts_exchange& e, Peer& peer, int64_t bytes) {
  const int64_t sent = send_now(peer.socket, e.mine.room + peer.went, static_cast<size_t>(bytes - peer.went));
  if (sent > 0) peer.went += sent;
  return sent > 0 ? 1 : sent == kNothingNow ? 0 : -1;
}

int64_t wanted_bytes(const Peer& peer) { return peer.came < kHead ? kHead : kHead + peer.head.rows * row_bytes(peer.head.width, peer.head.group); }

int32_t receive_some(const ts_exchange& e, Peer& peer, int64_t rows, int64_t most_width) {
  const bool head = peer.came < kHead;
  char* to = head ? reinterpret_cast<char*>(&peer.head) + peer.came : peer.room + (peer.came - kHead);
  const int64_t got = receive_now(peer.socket, to, static_cast<size_t>(wanted_bytes(peer) - peer.came));
  if (got > 0) peer.came += got;
  if (got > 0 && head && peer.came == kHead) {
    const PieceHead& said = peer.head;
    if (said.number != e.number || said.rows != rows || !is_form(said.width, said.group) || said.width > most_width) return -1;
    if (!make_room(peer, said.rows * row_bytes(said.width, said.group))) return -1;
  }
  return got > 0 ? 1 : got == kNothingNow ? 0 : -1;
}

bool all_came(const Peer& peer) { return peer.came >= kHead && peer.came == wanted_bytes(peer); }

// The bytes that this rank must still send to and receive from each rank of [first, last].
struct Round {
  ts_exchange& e;
  int32_t first, last;
  int64_t send_bytes;  // 0 where nothing is sent
  int64_t receive_rows, most_width;  // 0 rows where nothing is received
  int64_t limit_ns;

  bool sends(const Peer& peer) const { return peer.went < send_bytes; }
  bool receives(const Peer& peer) const { return receive_rows > 0 && !all_came(peer); }

  // Returns -1 where a rank is gone.
  int32_t move(bool& left) {
    int32_t moved = 0;
    left = false;
    for (int32_t r = first; r <= last; ++r) {
      if (r == e.rank) continue;
      Peer& peer = e.peers[r];
      const int32_t sent = sends(peer) ? send_some(e, peer, send_bytes) : 0;
      const int32_t came = receives(peer) ? receive_some(e, peer, receive_rows, most_width) : 0;
      if (sent < 0 || came < 0) return -1;
      moved |= sent | came;
      left = left || sends(peer) || receives(peer);
    }
    return moved;
  }

  void sleep() {
    static_assert(kMostRanks <= kMostWaits, "a wait for all ranks");
    SocketWait waiting[kMostRanks];
    int32_t count = 0;
    for (int32_t r = first; r <= last; ++r) {
      if (r == e.rank) continue;
      const Peer& peer = e.peers[r];
      if (sends(peer) || receives(peer)) waiting[count++] = {peer.socket, sends(peer), receives(peer)};
    }
    wait_for_sockets(waiting, count, kNapNs);
  }

  int32_t run() {
    for (int32_t r = first; r <= last; ++r) e.peers[r].came = e.peers[r].went = 0;
    int64_t since = now_ns();
    bool idle = false;
    for (bool left = true; left;) {
      const int32_t moved = is_over(e) ? -1 : move(left);
      if (moved > 0) {
        const int64_t now = now_ns();
        if (idle) count_wait(e, now - since);
        since = now;
      }
      idle = moved == 0;
      if (moved < 0 || (left && now_ns() - since > limit_ns)) {
        end(e);
        return TS_RANK_LOST;
      }
      if (left && moved == 0) now_ns() - since < kSpinNs ? pause_a_little() : sleep();
    }
    return TS_OK;
  }
};

bool write_mine(ts_exchange& e, const ts_value& value, int64_t group) {
  const int64_t bytes = kHead + value.rows * row_bytes(width_of(value), group);
  if (!make_room(e.mine, bytes)) return false;
  const PieceHead head = {e.number, value.rows, width_of(value), group};
  memcpy(e.mine.room, &head, kHead);
  pack_rows(value, group, 0, value.rows, e.mine.room + kHead);
  count_sent(e, bytes);
  return true;
}

}  // namespace

int32_t gather_by_sockets(ts_exchange& e, const ts_value& out, const ts_value& part, int64_t group) {
  if (out.rows == 0) return TS_OK;
  if (!write_mine(e, part, group)) return TS_NO_MEMORY;
  const int32_t status = Round{e, 0, e.ranks - 1, kHead + part.rows * row_bytes(width_of(part), group), out.rows, width_of(out), e.limit_ns}.run();
  if (status != TS_OK) return status;
  int64_t width = width_of(part);
  for (int32_t r = 0; r < e.ranks; ++r) width += r == e.rank ? 0 : e.peers[r].head.width;
  if (width != width_of(out)) {
    end(e);
    return TS_BAD_SHAPE;
  }
  for (int64_t r = 0, column = 0; r < e.ranks; ++r) {
    const int64_t own = r == e.rank ? width_of(part) : e.peers[r].head.width;
    if (r == e.rank) copy_rows(part, out, 0, out.rows, column);
    else unpack_rows(e.peers[r].room, own, e.peers[r].head.group, out, 0, out.rows, column);
    column += own;
  }
  return TS_OK;
}

int32_t hand_over_by_sockets(ts_exchange& e, const ts_value& value) {
  if (value.rows == 0) return TS_OK;
  if (!write_mine(e, value, 0)) return TS_NO_MEMORY;
  return Round{e, e.rank + 1, e.rank + 1, kHead + 4 * value.rows * width_of(value), 0, 0, kNoLimit}.run();
}

int32_t receive_by_sockets(ts_exchange& e, const ts_value& out) {
  if (out.rows == 0) return TS_OK;
  const int32_t status = Round{e, e.rank - 1, e.rank - 1, 0, out.rows, width_of(out), e.limit_ns}.run();
  if (status != TS_OK) return status;
  if (e.peers[e.rank - 1].head.width != width_of(out) || e.peers[e.rank - 1].head.group != 0) return TS_BAD_SHAPE;
  unpack_rows(e.peers[e.rank - 1].room, width_of(out), 0, out, 0, out.rows, 0);
  return TS_OK;
}

void end(ts_exchange& e) {
  e.over.store(true);
  if (e.shared != nullptr) e.shared->over.value.store(1);
  for (int32_t r = 0; e.peers != nullptr && r < e.ranks; ++r)
    if (r != e.rank && e.peers[r].socket >= 0) end_socket(e.peers[r].socket);
}

}  // namespace twostroke

ts_exchange* ts_exchange_sockets(const int32_t* sockets, int32_t rank, int32_t ranks, int64_t limit_ns) {
  using namespace twostroke;
  if (sockets == nullptr || ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks || limit_ns < 1) return nullptr;
  ts_exchange* e = static_cast<ts_exchange*>(calloc(1, sizeof(ts_exchange)));
  Peer* peers = static_cast<Peer*>(calloc(static_cast<size_t>(ranks), sizeof(Peer)));
  if (e == nullptr || peers == nullptr) {
    free(e);
    free(peers);
    return nullptr;
  }
  e->rank = rank;
  e->ranks = ranks;
  e->limit_ns = limit_ns;
  e->peers = peers;
  bool held = true;
  for (int32_t r = 0; r < ranks; ++r) {
    // The exchange has a descriptor of its own, because the caller's number may mean another file once the caller has closed it.
    peers[r].socket = r == rank || sockets[r] < 0 ? kNoSocket : copy_socket(sockets[r]);
    held = held && (r == rank || sockets[r] < 0 || peers[r].socket >= 0);
  }
  if (held) return e;
  ts_exchange_destroy(e);
  return nullptr;
}

void ts_exchange_begin(ts_exchange* exchange, int64_t number) {
  if (exchange != nullptr) exchange->number = number;
}

void ts_exchange_end(ts_exchange* exchange) {
  if (exchange != nullptr) twostroke::end(*exchange);
}

void ts_exchange_spent(const ts_exchange* exchange, int64_t* figures) {
  if (exchange != nullptr && figures != nullptr) memcpy(figures, exchange->spent, sizeof(exchange->spent));
}

void ts_exchange_destroy(ts_exchange* exchange) {
  if (exchange == nullptr) return;
  for (int32_t r = 0; exchange->peers != nullptr && r < exchange->ranks; ++r) {
    free(exchange->peers[r].room);
    if (exchange->peers[r].socket >= 0) twostroke::close_socket(exchange->peers[r].socket);
  }
  free(exchange->peers);
  free(exchange->mine.room);
  free(exchange);
}
