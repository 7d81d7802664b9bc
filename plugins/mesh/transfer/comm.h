// The common base of send comms and receive comms: one direction of traffic to one peer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/mesh/log.h"
#include "plugins/mesh/transfer/lane.h"
#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/registrations.h"
#include "plugins/mesh/transfer/request.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Maximum number of open comms in a process.
inline constexpr std::size_t kMaxComms = 65536;

/// A message in the immediate value of a SEND without data: a kind (8 bits) and a count (24 bits).
struct Notice {
  enum Kind : std::uint8_t {
    kEager = 0xfd,  ///< count: see Comm::on_eager()
    kIdle = 0xfe,   ///< count: receives that are done
    kPing = 0xff,
  };
  std::uint8_t kind = kPing;  ///< a Kind, or the index of a lane that the sender has stopped
  std::uint32_t count = 0;    ///< modulo 2^24; for a stopped lane: messages received on it

  std::uint32_t encode() const { return std::uint32_t{kind} << 24 | (count & kCountMask); }
  static Notice decode(std::uint32_t value) { return {static_cast<std::uint8_t>(value >> 24), value & kCountMask}; }
};

/// Owns the lanes and registrations, detects a lost peer, and handles failures.
///
/// A lane that fails is stopped on both sides, and what the peer did not receive on it is repeated on the other lanes.
/// The peers exchange notices for this. A comm without a working lane fails.
/// A receiver without outstanding receives may make no call for a long time, and then it answers no notice. So when its
/// last receive is done, it tells the sender on all lanes that all its receives are done.
/// Eager messages also have notices: the receiver says how many it has copied from their slots, and the sender asks for
/// the announcement of the next receive.
/// A comm that failed stays broken: all later calls return the first error.
/// Threads: at most one thread transfers (sends, receives, flushes, tests), and it takes no lock. Meanwhile other
/// threads may register and deregister memory. All other members are called while no thread transfers.
class Comm {
 public:
  /// Counts since the comm was opened.
  struct Counters {
    std::uint64_t messages = 0;   ///< number sent or received
    std::uint64_t bytes = 0;      ///< bytes of these messages
    std::uint32_t failovers = 0;  ///< lanes that failed
    std::uint64_t repeated = 0;   ///< work requests that were posted again to another lane
    std::int64_t pause_ms = 0;    ///< time from the last progress of a failed lane until its work continued
  };

  /// Enters the table of comms. `starts`: 1 to kMaxLanes. `requests`, `parts`: the arguments of ProfilerEvents. Errors:
  /// Failure.
  Comm(const std::vector<LaneStart>& starts, const LaneNeeds& needs, std::size_t requests, std::size_t parts);
  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// The comm that a request belongs to, or nullptr. Takes no lock.
  static Comm* of(const RequestId& id);
  /// Breaks all open comms and releases their queue pairs and registrations. Later calls on them fail.
  static void abandon_all();

  /// Connects the lanes to the lanes of the peer, one endpoint for each. Errors: Failure.
  void start(std::span<const Endpoint> remotes, const Transport& transport);

  std::vector<Endpoint> endpoints() const;
  /// The local ends of the lanes. Errors: Failure if relays connect the peer.
  std::vector<LaneStart> links() const;
  /// Errors: Failure.
  Registration* add_memory(const MemoryToRegister& memory);
  /// After the call neither the NIC nor a stream accesses the memory for this comm. If another comm shares the
  /// registration and a transfer of this comm uses it, this comm fails. Errors: Failure for a registration of another
  /// comm.
  void remove_memory(Registration* registration);
  const Counters& counters() const { return counters_; }

  /// Implements NCCL's test; makes progress. `sizes` may be null.
  virtual Result test(const RequestId& id, int* done, int* sizes) = 0;

  /// Makes progress, and returns the code of the error if the peer is lost.
  Result check();

  /// Takes the TCP connection after the handshake, to detect that the peer has left. If relays connect the peer, it
  /// also carries the transfers.
  void monitor(PeerLink link, const ConnectionKey& key);

  /// Tells the peer and stops all transfers. The caller destroys the comm next. Does not wait for the peer.
  void close();

 protected:
  RequestId request_id(std::size_t index, std::uint16_t generation) const {
    return {
        .comm = index_, .comm_serial = serial_, .index = static_cast<std::uint8_t>(index), .generation = generation};
  }

  bool broken() {
    if (!error_ && interrupted_.load(std::memory_order_acquire)) [[unlikely]]
      fail_by_interruption();
    return error_.has_value();
  }
  /// Breaks the comm permanently. The first error is kept.
  void fail(Result code, const std::string& why);
  /// Returns the code of the error. The first call logs it.
  Result report();

  /// Handles some completions of all lanes. Without a completion, checks whether the peer or a link is lost.
  void poll();
  /// Tells the peer on all lanes that this side has finished this number of receives.
  void tell_idle(std::uint32_t groups);
  /// Sends the notice about eager messages. Returns false if it must be repeated later.
  bool tell_eager(std::uint32_t value);
  /// Copies a message to memory that is registered on this comm, in the order in which a NIC writes. Returns false, and
  /// does not write, if memory was deregistered while a transfer used it.
  bool copy_to(const Registration* memory, std::byte* target, std::span<const std::byte> source);
  std::size_t lanes_up() const;
  /// The first lane that carries traffic. Precondition: not broken.
  std::size_t first_lane_up() const;
  /// Whether a lane failed and the peer's notice has not arrived yet.
  bool switching() const;

  /// Called when a work request is acknowledged.
  virtual void on_done(const Work& work) = 0;
  /// Called, in the order of posting, for work of a failed lane that the peer does not have.
  virtual void on_lost(std::size_t lane, const Work& work) = 0;
  /// Called when the peer has finished all receives up to this number, modulo 2^24.
  virtual void on_idle(std::uint32_t groups) = 0;
  /// Called with the peer's notice about eager messages.
  virtual void on_eager(std::uint32_t value) = 0;
  virtual void on_received(const Lane& lane, const ibv_wc& completion) = 0;
  /// Called after all work of a failed lane was passed to on_done or on_lost.
  virtual void on_switched() = 0;
  /// Completes the sends that the peer had received when it left. nullopt: the peer did not say how many.
  virtual void settle(std::optional<std::uint64_t> messages_received) = 0;
  /// Whether this side copies messages to the memory of receives.
  virtual bool copies() const = 0;
  /// Messages that this side has received.
  virtual std::uint64_t messages_received() const = 0;

  /// Whether an outstanding transfer uses this registration. May run while another thread transfers, but not with this
  /// registration.
  virtual bool uses(const Registration& memory) const = 0;

  std::string peer_text() const;

  std::vector<Lane> lanes_;
  std::size_t piece_bytes_ = 0;  ///< maximum size of a work request; see `piece_bytes()`
  Counters counters_;
  ProfilerEvents events_;
  Flushes flushes_;

 private:
  int poll_lane(Lane& lane);
  void on_error(Lane& lane, const ibv_wc& completion);
  bool take_down(Lane& lane, const std::string& why);
  void take_notice(const Notice& notice);
  void switch_over(Lane& lane);
  std::size_t index_of(const Lane& lane) const { return static_cast<std::size_t>(&lane - lanes_.data()); }
  void post_notice(Lane& lane, const Notice& content);
  bool only_link_lost() const;
  void check_peer();
  void check_links(std::int64_t now_ms);
  void drain();
  void fail_by_interruption();
  void end_by_peer();
  void abandon();

  Registrations registrations_;
  std::atomic<bool> interrupted_ = false;               ///< memory was deregistered while it was used
  std::atomic<const Registration*> copying_ = nullptr;  ///< the target of a copy that is running
  PeerMonitor peer_;
  bool draining_ = false;  ///< unsuccessful completions are expected
  std::optional<Failure> error_;
  bool reported_ = false;
  std::int64_t links_checked_ms_ = 0;
  std::int64_t pinged_ms_ = 0;

  std::uint16_t index_ = 0;  ///< index in the table of comms
  std::uint8_t serial_ = 0;  ///< differs between comms that have the same index one after the other
};

/// Maximum size of the pieces that a message is cut into: what all ports can send, at most 1 GiB, whole pages.
std::size_t piece_bytes(std::span<const Endpoint> ones, std::span<const Endpoint> others);

}  // namespace mesh
