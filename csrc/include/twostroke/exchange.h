// How the ranks of one model exchange numbers inside a step: through memory that they share, or over connections. Every wait for numbers
// has a bound. Where a wait reaches it, or another rank has ended, the exchange is over for good: this call and all later ones return
// TS_RANK_LOST.
// A stage that hands over waits without a bound. The last stage decides when a plan goes on, and it finds a stage that hangs.
#pragma once
#include <stdint.h>

#include <atomic>

#include "twostroke/abi.h"
#include "twostroke/ops.h"
#include "twostroke/system/system.h"

namespace twostroke {

constexpr int32_t kMostRanks = 64;
constexpr int64_t kSpinNs = 20000;  // where nothing shows that the other rank works, a longer wait sleeps
constexpr int64_t kWorkNs = 5000000;  // how long a rank polls for another that is running; ranks in one step rarely differ by more
constexpr int64_t kNapNs = 50000000;  // the longest sleep before a rank checks whether the exchange has ended
constexpr int64_t kNoLimit = INT64_MAX;
constexpr int64_t kSlots = 2;  // slots of each rank: one that it wrote last, and one that others may still read

// A count has a cache line of its own, because ranks read one another's counts all the time.
struct alignas(64) Count {
  std::atomic<uint32_t> value;
};

// The beginning of the shared memory, which is zeros at first. written: the pieces that a rank has written. taken: the pieces that a rank
// has read from the rank before it (stages).
struct SharedHead {
  Count over, sleepers;
  Count written[kMostRanks], taken[kMostRanks];
  Count process[kMostRanks];  // the ids of the processes
};

// The head before the rows of a piece. number: the number of the program's pass, because ranks in different passes must not exchange.
// group: 0 for floats; for rounded rows, the columns that share a scale.
struct alignas(64) PieceHead {
  int64_t number, rows, width, group;
};

// How much of one rank's rows has arrived, and how much was sent to it.
struct Peer {
  Socket socket;
  PieceHead head;
  char* room;
  int64_t room_bytes, came, went;
};

}  // namespace twostroke

constexpr int32_t kSpentFigures = 4;

struct ts_exchange {
  int32_t rank, ranks;
  int64_t number;  // the number of the pass that runs
  int64_t limit_ns;  // the longest wait for another rank
  // The shared memory; NULL where there are connections.
  twostroke::SharedHead* shared;
  char* slots;
  int64_t piece_bytes;
  uint32_t pieces, received;  // pieces that this rank has written and received
  // The connections. The bytes that are sent lie in `mine`.
  twostroke::Peer* peers;
  twostroke::Peer mine;
  std::atomic<bool> over;
  // calls, bytes sent, ns in calls, ns of these in which it waited; only the thread that runs the ops writes them
  int64_t spent[kSpentFigures];
};

namespace twostroke {

ts_exchange* exchange_of(ts_context* context);  // NULL for a rank alone

bool is_over(const ts_exchange& e);
void end(ts_exchange& e);

inline void count_sent(ts_exchange& e, int64_t bytes) { e.spent[1] += bytes; }
inline void count_wait(ts_exchange& e, int64_t ns) { e.spent[3] += ns; }

// Each function returns a ts_status. gather: out becomes the parts of all ranks, one after the other. hand_over and receive move rows from
// a rank to the next. group: the group by which this rank's part is rounded, or 0; see rounded_group.
int32_t gather(ts_exchange& e, const ts_value& out, const ts_value& part, int64_t group);
int32_t hand_over(ts_exchange& e, const ts_value& value);
int32_t receive(ts_exchange& e, const ts_value& out);

int32_t gather_by_sockets(ts_exchange& e, const ts_value& out, const ts_value& part, int64_t group);
int32_t hand_over_by_sockets(ts_exchange& e, const ts_value& value);
int32_t receive_by_sockets(ts_exchange& e, const ts_value& out);

// The form of columns [first, first + width), which are read only by a product with `reader`: the product's group where the columns are
// whole groups, or 0.
int64_t rounded_group(const ts_weight* reader, int64_t first, int64_t width);
int64_t row_bytes(int64_t width, int64_t group);
bool is_form(int64_t width, int64_t group);
// Copies rows [first, first + count) of a value to or from rows without gaps, or to the same rows of another value.
void pack_rows(const ts_value& from, int64_t group, int64_t first, int64_t count, char* to);
void unpack_rows(const char* from, int64_t width, int64_t group, const ts_value& to, int64_t first, int64_t count, int64_t column);
void copy_rows(const ts_value& from, const ts_value& to, int64_t first, int64_t count, int64_t column);

}  // namespace twostroke
