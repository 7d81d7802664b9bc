// A queue pair with its completion queue and registered memory, and the detection of a peer that has left.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "harness/abi/base.h"
#include "plugins/mesh/device/device.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/relay/stream.h"

namespace mesh {

/// Watches the TCP connection of the handshake, which stays open as long as the connection is used. Not thread-safe.
class PeerMonitor {
 public:
  /// Takes the TCP connection after the handshake.
  void start(PeerLink link, const ConnectionKey& key) {
    link_ = std::move(link);
    key_ = key;
  }
  /// Watches the stream of a relayed connection instead; it must outlive the use of this object.
  void start(Stream& stream) { stream_ = &stream; }

  /// Reads what the peer has sent.
  void read();
  /// Whether the peer closed the connection or its process has ended.
  bool left() const { return left_; }
  /// How many messages the peer had received when it closed the connection; nullopt if it sent no valid Close.
  std::optional<std::uint64_t> messages_received_by_peer() const { return messages_received_; }
  /// Why the peer is considered lost: "it closed the connection".
  std::string reason() const {
    if (stream_ != nullptr) return stream_->end_reason();
    return link_.ended() ? link_.end_reason() : "it sent an invalid message";
  }

  /// Whether the connection ended because packets no longer reached the peer, and not because the peer closed it.
  bool unreachable() const { return link_.unreachable(); }

  /// Reads at most once per tick of the coarse clock, whose value is `now_ms`. Returns true from 20 ms after the peer
  /// left, when the NIC has delivered what arrived before.
  bool poll(std::int64_t now_ms);

  /// Tells the peer that this side closes the connection and how many messages it received.
  void send_close(std::uint64_t messages_received);

 private:
  PeerLink link_;
  ConnectionKey key_;
  Stream* stream_ = nullptr;
  bool left_ = false;
  std::optional<std::uint64_t> messages_received_;
  std::int64_t polled_at_ms_ = 0;
  std::int64_t left_at_ms_ = 0;
};

/// Zeroed pages that are registered with a NIC.
class StagingMemory {
 public:
  /// `access`: flags of `ibv_reg_mr`. Errors: Failure.
  StagingMemory(std::shared_ptr<const Device> device, std::size_t bytes, int access = IBV_ACCESS_LOCAL_WRITE);
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  std::byte* data() const { return data_; }
  std::uint32_t local_key() const { return region_->lkey; }
  std::uint32_t remote_key() const { return region_->rkey; }

 private:
  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  ibv_mr* region_ = nullptr;
};

/// Stands for the local address of a queue pair whose peer only relays reach.
inline constexpr Address kRelayed = {};

/// The plan that NCCL announces; -1: unknown.
struct NetPlan {
  int peers = -1;  ///< maximum number of concurrent peers
  int flows = -1;  ///< maximum number of connections to each of them
};

struct Transport {
  int timeout = 0;  ///< time until a packet counts as lost: 4.096 us * 2^timeout
  int retry_count = 0;
  int traffic_class = 0;
  int links = 1;                  ///< maximum number of parallel links that carry a connection
  int queue_pairs = 1;            ///< number of queue pairs of a connection on each link
  std::uint32_t eager_bytes = 0;  ///< maximum size of a message that is sent before its receive is announced
  plugfest::abi::ProfilerCallback profiler = nullptr;
  NetPlan plan = {};
};

/// An RC queue pair, or a stream with its functions. Errors of every member, unless stated otherwise: Failure. Not
/// thread-safe.
class QueuePair {
 public:
  struct Depth {
    std::uint32_t send = 0;
    std::uint32_t receive = 0;
    std::uint32_t inline_bytes = 0;  ///< requested; see `inline_bytes()`
    std::uint8_t reads = 0;          ///< requested; see `reads()`
  };

  /// Creates a queue pair in state INIT, in which receives can be posted. `local`: an address of the device, or
  /// `kRelayed` for a peer that only relays connect: then it is a stream, which `stream` returns.
  /// `remote_access`: what the peer may do with registered memory: flags of `ibv_access_flags`.
  QueuePair(std::shared_ptr<const Device> device, const Address& local, Depth depth, int remote_access);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  const Device& device() const { return *device_; }

  /// Null unless it was created as relayed.
  Stream* stream() { return stream_.get(); }

  /// Moves to state RTR and then RTS. Does nothing for a stream.
  void connect(const Endpoint& remote, const Transport& transport);

  /// Stops all transfers. Posted work requests complete with a flush error. Errors: none.
  void stop();

  /// Post a list of work requests. Return 0 or an error number.
  int post_send(ibv_send_wr* first) {
    if (stream_) return stream_->post_send(first);
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(queue_pair_, first, &bad);
  }
  int post_receive(ibv_recv_wr* first) {
    if (stream_) return stream_->post_receive(first);
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(queue_pair_, first, &bad);
  }
  /// Takes completions. Returns their number, or a negative number on an error.
  int poll(std::span<ibv_wc> completions) {
    if (stream_) return stream_->poll(completions);
    return ibv_poll_cq(completions_, static_cast<int>(completions.size()), completions.data());
  }

  /// Maximum size of inline data: the requested one, or 0 if the device refused that.
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  /// READs and atomic operations in flight in each direction: the requested number, or the device's maximum.
  std::uint8_t reads() const { return reads_; }
  /// Limits them to those that the peer supports. Call it before `connect`.
  void limit_reads(std::uint8_t most) { reads_ = std::min(reads_, most); }

 private:
  void create(Depth depth);
  void release();

  std::shared_ptr<const Device> device_;
  std::unique_ptr<Stream> stream_;
  ibv_cq* completions_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  std::uint8_t gid_index_ = 0;
  std::uint8_t reads_ = 0;
  std::uint32_t inline_bytes_ = 0;
  Endpoint endpoint_;
};

}  // namespace mesh
