// The network transfers of NCCL's proxies, collected from the recordings of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/trace/recording.h"
#include "harness/wire/fields.h"

namespace plugfest::trace {

/// One rank of one communicator.
struct Member {
  std::string communicator;  ///< its id, the same in all ranks
  int rank = 0;
  std::string host;
  std::size_t process = 0;  ///< the same for all members of a process
  PLUGFEST_FIELDS(communicator, rank, host, process)
};

/// A thread of a process waited for a processor during `waited` of an interval. Nanoseconds since the first event.
struct ProcessorWait {
  std::size_t process = 0;
  std::int64_t start = 0, stop = 0, waited = 0;
  PLUGFEST_FIELDS(process, start, stop, waited)
};

/// One call of a collective in all ranks, or all sends and receives of a communicator.
struct Operation {
  std::string communicator;
  std::string function, algorithm, protocol;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;  ///< of this function in its communicator
  PLUGFEST_FIELDS(communicator, function, algorithm, protocol, bytes, sequence)
};

/// What operations of one kind share: communicator, function, bytes, algorithm and protocol.
using OperationKind = std::tuple<std::string, std::string, std::uint64_t, std::string, std::string>;
OperationKind kind_of(const Operation& operation);
/// "AllReduce, 1024 bytes, RING LL"
std::string title_of(const OperationKind& kind);

/// What a transfer waits for, in the order of time for each direction.
enum Wait : std::size_t {
  kSendGpu,
  kSendPeer,  ///< until the net plugin accepts the send, which needs the peer's receive
  kSendNetwork,
  kReceivePlugin,  ///< until the net plugin accepts the receive
  kReceiveData,
  kReceiveFlush,
  kReceiveGpu,
};
inline constexpr std::size_t kWaits = 7;

/// Times: nanoseconds since the first event.
struct WaitInterval {
  Wait kind;
  std::int64_t from, to;
};

/// One step of a proxy operation, a message through the net plugin. Times: nanoseconds since the first event. A time
/// that the direction lacks equals the time of the member before it.
struct Transfer {
  std::size_t operation = 0;  ///< index of Transfers::operations
  int rank = 0, peer = 0;
  int channel = 0;
  std::uint64_t chain = 0;  ///< which of several operations of `operation` between these ranks on this channel
  int step = 0;
  bool sends = false;
  std::uint64_t bytes = 0;
  std::int64_t start = 0;
  std::int64_t ready = 0;     ///< send: the GPU has written the data
  std::int64_t accepted = 0;  ///< the net plugin has accepted the message
  std::int64_t arrived = 0;   ///< receive: the data have arrived
  std::int64_t flushed = 0;   ///< receive: the data are visible to the GPU
  std::int64_t stop = 0;
  std::uint64_t retransmissions = 0;  ///< packets of a send, if the packets were captured

  /// All waits of the direction, including waits of length 0.
  std::vector<WaitInterval> waits() const;
};

/// When a rank reached an operation.
struct Arrival {
  std::size_t operation = 0;
  int rank = 0;
  std::int64_t start = 0;
  PLUGFEST_FIELDS(operation, rank, start)
};

struct Transfers {
  std::vector<Member> members;
  std::vector<Operation> operations;
  std::vector<Arrival> arrivals;
  std::vector<ProcessorWait> processor_waits;
  std::vector<Transfer> transfers;
};

/// "rank 1 on b"
std::string name_of(const Transfers& transfers, const std::string& communicator, int rank);

/// The transfers as one line of JSON; each transfer is a list of the numbers above, in their order.
std::string json_line(const Transfers& transfers);

/// Where a transfer is in the file of a recording.
struct TransferSource {
  std::size_t recording, event;
};

/// Time of the first recording's clock minus time of `recording`'s clock. Recordings of the same boot share a clock;
/// other hosts are assumed to have the same CLOCK_REALTIME.
std::int64_t clock_offset_ns(const Recording& first, const Recording& recording);

/// The time of the first event of all recordings, on the clock of the first one.
std::int64_t first_event_ns(const std::vector<Recording>& recordings);

/// Collects the transfers that have ended. `sources`: if not null, gets the event of each transfer.
Transfers transfers_of(const std::vector<Recording>& recordings, std::vector<TransferSource>* sources = nullptr);

inline constexpr std::size_t kUnmatched = static_cast<std::size_t>(-1);
/// Returns for each transfer the index of the transfer of the other side, or kUnmatched if there is none.
std::vector<std::size_t> matched(const Transfers& transfers);

/// The key of the object in a merged trace that contains the transfers.
inline constexpr std::string_view kTransfersKey = "plugfest";
/// Reads the transfers of recordings, or of one file that merge() made. Errors: std::runtime_error.
Transfers read_transfers(const std::vector<std::string>& paths);

}  // namespace plugfest::trace
