// What the two kinds of connections, for sending and for receiving, have in common: identity, registered memory, the
// link to the peer, and how they fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "plugins/mesh/failure.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/request.h"

namespace mesh {

/// Memory registered on one comm; NCCL's mhandle points to it.
struct Registration {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  ibv_mr* region = nullptr;  ///< none for memory of no bytes
  std::shared_ptr<const Device> device;

  bool covers(const void* data, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    return first >= begin && bytes <= size && first - begin <= size - bytes;
  }
};

/// One direction of traffic to one peer.
///
/// Thread safety: all members may be called from several threads. Registering never waits for transfers, nor they for
/// it.
class Comm {
 public:
  /// Takes a number in the table of comms, and memory for announcements. Errors: Failure.
  Comm(std::shared_ptr<const Device> device, const Address& local, QueuePair::Depth depth, bool remote_write,
       std::size_t announcement_bytes);
  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// The comm that a request names, or nullptr. Without a lock.
  static Comm* of(const RequestId& id);
  /// Breaks all comms that are still open: their queue pairs and registrations are released, later calls fail.
  static void abandon_all();

  const Endpoint& endpoint() const { return queue_pair_->endpoint(); }

  /// Registers host memory. Errors: Failure; the comm stays usable.
  Registration* add_memory(void* data, std::size_t bytes);
  /// Afterwards the NIC no longer touches the memory, whatever is outstanding. Errors: Failure for what is none of
  /// ours.
  void remove_memory(Registration* registration);

  /// Whether this request is done, and what came of it; makes progress. `sizes` may be null.
  virtual Result test(const RequestId& id, int* done, int* sizes) = 0;

  /// The handshake is over: from here on the link only tells whether the peer is there.
  void watch(PeerLink link);

  /// Tells the peer and ends; whoever holds the comm destroys it next. Waits for nobody.
  void close();

 protected:
  // The members below are for holders of `mutex_`.

  /// Both ends are known: packets are answered from here on. Errors: Failure.
  void connect_to(const Endpoint& remote, const Transport& transport);

  RequestId request_id(std::size_t index, std::uint16_t generation) const {
    return {
        .comm = index_, .comm_serial = serial_, .index = static_cast<std::uint8_t>(index), .generation = generation};
  }

  bool broken() const { return error_ != Result::kSuccess; }
  /// Breaks the comm for good; the first reason counts.
  void fail(Result code, const std::string& why);
  /// The code that calls on a broken comm return; logs the reason the first time.
  Result report();

  /// Judges a completion that is not a success.
  void fail_by(const ibv_wc& completion);
  /// Sees whether the peer is still there, now and then. To be called when nothing else happens.
  void watch_peer();
  /// Handles some completions; how many.
  virtual int poll() = 0;
  /// The peer has gone after it had received this many messages; nothing was said: none more than is known here.
  virtual void settle(std::optional<std::uint64_t> messages_received) = 0;
  /// For the peer: messages that arrived here.
  virtual std::uint64_t messages_received() const = 0;

  std::string peer_text() const;

  std::mutex mutex_;  ///< over everything but the registrations
  std::shared_ptr<const Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  std::unique_ptr<StagingMemory> announcements_;
  const int memory_access_;  ///< of what is registered
  Endpoint remote_;

 private:
  void read_link();
  void conclude();
  void abandon();

  PeerLink link_;
  bool peer_gone_ = false;
  bool concluding_ = false;
  std::optional<std::uint64_t> peer_received_;  ///< by its Goodbye
  std::int64_t watched_at_ms_ = 0;
  std::int64_t gone_at_ms_ = 0;

  Result error_ = Result::kSuccess;
  std::string error_text_;
  bool reported_ = false;

  std::mutex registrations_mutex_;
  std::unordered_set<Registration*> registrations_;

  std::uint16_t index_ = 0;
  std::uint8_t serial_ = 0;
};

/// The largest piece that a message is cut into between two ports: what both can carry, at most 1 GiB, whole pages.
std::size_t piece_bytes(const Endpoint& one, const Endpoint& other);

}  // namespace mesh
