// The common base of send comms and receive comms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/mesh/failure.h"
#include "plugins/mesh/transfer/peer_monitor.h"
#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/registrations.h"
#include "plugins/mesh/transfer/request.h"

namespace mesh {

/// One direction of traffic to one peer: queue pair, registrations, detection of a lost peer, and failure.
///
/// A comm that failed stays broken: all later calls return the first error.
/// Thread safety: all public members may be called from several threads. Registration never waits for transfers, and
/// transfers never wait for registration.
class Comm {
 public:
  /// Enters the table of comms and allocates `announcement_bytes` of memory for announced receives. `remote_write`: the
  /// peer may write to registered memory. Errors: Failure.
  Comm(std::shared_ptr<const Device> device, const Address& local, QueuePair::Depth depth, bool remote_write,
       std::size_t announcement_bytes);
  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// The comm that a request belongs to, or nullptr. Takes no lock.
  static Comm* of(const RequestId& id);
  /// Breaks all open comms and releases their queue pairs and registrations. Later calls on them fail.
  static void abandon_all();

  const Endpoint& endpoint() const { return queue_pair_->endpoint(); }
  Registrations& registrations() { return registrations_; }

  /// As NCCL's test; makes progress. `sizes` may be null.
  virtual Result test(const RequestId& id, int* done, int* sizes) = 0;

  /// Takes the TCP connection after the handshake, to detect that the peer has left.
  void monitor(PeerLink link);

  /// Tells the peer and stops all transfers. The caller destroys the comm next. Does not wait for the peer.
  void close();

 protected:
  // The caller of a protected member holds `mutex_`.

  /// Connects the queue pair. Errors: Failure.
  void connect_to(const Endpoint& remote, const Transport& transport);

  RequestId request_id(std::size_t index, std::uint16_t generation) const {
    return {
        .comm = index_, .comm_serial = serial_, .index = static_cast<std::uint8_t>(index), .generation = generation};
  }

  bool broken() const { return error_.has_value(); }
  /// Breaks the comm permanently. The first error is kept.
  void fail(Result code, const std::string& why);
  /// Returns the code of the error. The first call logs it.
  Result report();

  /// Breaks the comm because of an unsuccessful completion.
  void fail_by(const ibv_wc& completion);
  /// Breaks the comm if the peer has left. Called when there is no completion.
  void check_peer();
  /// Handles some completions and returns their number.
  virtual int poll() = 0;
  /// Completes the sends that the peer had received when it left. nullopt: the peer did not say how many.
  virtual void settle(std::optional<std::uint64_t> messages_received) = 0;
  /// Messages that this side has received.
  virtual std::uint64_t messages_received() const = 0;

  std::string peer_text() const;

  std::mutex mutex_;  ///< protects everything but `registrations_`
  std::shared_ptr<const Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  std::unique_ptr<StagingMemory> announcements_;

 private:
  void drain();
  void end_by_peer();
  void abandon();

  Registrations registrations_;
  Endpoint remote_;
  PeerMonitor peer_;
  bool draining_ = false;  ///< unsuccessful completions are expected
  std::optional<Failure> error_;
  bool reported_ = false;

  std::uint16_t index_ = 0;  ///< in the table of comms
  std::uint8_t serial_ = 0;  ///< differs between comms that have the same index one after the other
};

/// Maximum size of the pieces that a message is cut into: what both ports can send, at most 1 GiB, whole pages.
std::size_t piece_bytes(const Endpoint& one, const Endpoint& other);

}  // namespace mesh
