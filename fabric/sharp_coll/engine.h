// The data path of one communicator, without sockets and clock: splits reductions into fragments, keeps at most a
// fragment window of them outstanding, sends contributions again until their results arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/reduction/packet.h"
#include "fabric/sharp_coll/round_trip.h"
#include "fabric/sharp_coll/transfer.h"
#include "fabric/system/clock.h"

namespace plugfest::sharp_coll {

/// A collective that was posted to an Engine. The engine writes it; others read it.
struct Operation {
  explicit Operation(const Transfer& what) : transfer(what) {}

  bool finished() const { return status != kInProgress; }

  static constexpr int kInProgress = 1;
  int status = kInProgress;  ///< kInProgress, SHARP_COLL_SUCCESS or a negative sharp_error_no
  Transfer transfer;
  std::vector<std::byte> source_copy;  ///< if results overwrite the source
  std::uint64_t first_slot = 0;
  std::uint64_t fragments = 0;
  std::uint64_t without_result = 0;  ///< number of fragments without a result
};

/// Counters of an engine.
struct Counters {
  std::uint64_t operations = 0;
  std::uint64_t fragments = 0;
  std::uint64_t contributions = 0;  ///< packets sent, without repeats
  std::uint64_t repeats = 0;        ///< packets sent again
  std::uint64_t results = 0;        ///< accepted packets
  std::uint64_t repeated_results = 0;
  std::uint64_t invalid_packets = 0;  ///< malformed, corrupt, or not for this engine
};

/// Moves the fragments of one rank in one group. Fragments have slots, which count on over all operations; fragment k
/// is sent when the results of all fragments up to k - fragment_window have arrived. Operations complete in any order.
/// Thread safety: none.
class Engine {
 public:
  struct Settings {
    std::uint32_t group = 0;
    std::uint16_t child = 0;            ///< index among the children of its aggregation node
    std::uint32_t fragment_window = 1;  ///< maximum number of outstanding fragments
    std::uint32_t max_payload = 0;      ///< bytes, at least 8
  };

  explicit Engine(Settings settings);

  /// Starts an operation. Its memory must exist until it has finished. After fail(): the operation has failed.
  std::shared_ptr<Operation> post(const Transfer& transfer, Nanoseconds now);

  /// Writes the packet that is to be sent now into `packet`, which has room for packet_capacity() bytes. Returns its
  /// size; 0 if nothing is to be sent now.
  std::size_t next_packet(Nanoseconds now, std::span<std::byte> packet);
  std::size_t packet_capacity() const;

  /// Takes a packet from the network. Accepts any bytes.
  void on_packet(std::span<const std::byte> packet, Nanoseconds now);

  /// When next_packet() must be called again although nothing has been received or posted; kNever if nothing is
  /// outstanding.
  Nanoseconds next_deadline() const;

  /// When the engine last made progress: a result, or an operation posted while none was in progress. kNever if no
  /// operation is in progress.
  Nanoseconds waiting_since() const { return unfinished_ == 0 ? kNever : last_progress_; }

  /// Ends all operations, including later ones, with `code`.
  void fail(int code);
  /// SHARP_COLL_SUCCESS, or the code of fail().
  int status() const { return status_; }

  const Counters& counters() const { return counters_; }

 private:
  // A fragment that was sent and has no result.
  struct Outstanding {
    std::shared_ptr<Operation> operation;  // null: the result has arrived
    Nanoseconds sent = 0;                  // for the first time
    Nanoseconds deadline = 0;
    std::uint64_t order = 0;  // number of its last transmission
    unsigned transmissions = 0;
  };

  struct Fragment {
    std::size_t begin = 0;  // byte of the vector
    std::size_t end = 0;
  };

  Outstanding& at(std::uint64_t slot) { return outstanding_[slot % outstanding_.size()]; }
  Fragment fragment_of(const Operation& operation, std::uint64_t slot) const;
  std::size_t fragment_bytes(const Transfer& transfer) const;
  std::uint64_t slot_to_repeat(Nanoseconds now);
  std::size_t transmit(std::uint64_t slot, Nanoseconds now, std::span<std::byte> packet);
  std::size_t write(const Operation& operation, std::uint64_t slot, std::span<std::byte> packet) const;
  bool fits(const Operation& operation, std::uint64_t slot, const reduction::Packet& result) const;
  void store(const Operation& operation, std::uint64_t slot, std::span<const std::byte> payload);

  const Settings settings_;
  std::vector<Outstanding> outstanding_;           // ring of `fragment_window` places
  std::deque<std::shared_ptr<Operation>> unsent_;  // operations with fragments that were not sent, in order of posting
  std::size_t unfinished_ = 0;                     // operations
  std::uint64_t oldest_ = 0;                       // first slot without result
  std::uint64_t next_ = 0;                         // first slot that was not sent
  std::uint64_t posted_ = 0;                       // slots of all operations so far
  std::uint64_t transmissions_ = 0;
  std::uint64_t latest_answered_ = 0;  // highest transmission number that a result has answered
  Nanoseconds deadline_ = kNever;      // not later than the first deadline of an outstanding fragment
  Nanoseconds last_progress_ = 0;
  Nanoseconds last_result_ = 0;  // including repeated results
  RoundTrip round_trip_;
  Counters counters_;
  int status_ = SHARP_COLL_SUCCESS;
};

}  // namespace plugfest::sharp_coll
