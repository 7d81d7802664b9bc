// A reliable connection: one queue pair, its completion queue, memory that the NIC may touch.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plugins/mesh/device/device.h"
#include "plugins/mesh/handshake/message.h"

namespace mesh {

/// Zeroed pages of our own, registered with a NIC.
class StagingMemory {
 public:
  /// Errors: Failure.
  StagingMemory(std::shared_ptr<const Device> device, std::size_t bytes);
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  std::byte* data() const { return data_; }
  std::uint32_t local_key() const { return region_->lkey; }

 private:
  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  ibv_mr* region_ = nullptr;
};

/// How packets of a connection are sent.
struct Transport {
  int timeout = 0;  ///< 4.096 us * 2^timeout
  int retry_count = 0;
  int traffic_class = 0;
};

/// Errors of all: Failure, unless said otherwise. Not thread safe.
class QueuePair {
 public:
  struct Depth {
    std::uint32_t send = 0;
    std::uint32_t receive = 0;
    std::uint32_t inline_bytes = 0;  ///< wished for; `inline_bytes()` tells what came of it
  };

  /// In state INIT: receives can be posted. `local`: an address of the device. `remote_write`: the peer may write into
  /// memory that is registered for it.
  QueuePair(std::shared_ptr<const Device> device, const Address& local, Depth depth, bool remote_write);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// This end, to be told to the other.
  const Endpoint& endpoint() const { return endpoint_; }

  /// Moves on to RTR and RTS.
  void connect(const Endpoint& remote, const Transport& transport);

  /// Stops all transfers. What is queued completes with a flush error. Never fails.
  void stop();

  /// 0 or an error number, as verbs gives it.
  int post_send(ibv_send_wr* first);
  int post_receive(ibv_recv_wr* first);
  /// Count of completions, or negative.
  int poll(std::span<ibv_wc> completions) {
    return ibv_poll_cq(completions_, static_cast<int>(completions.size()), completions.data());
  }

  std::uint32_t inline_bytes() const { return inline_bytes_; }

 private:
  void create(Depth depth);
  void release();

  std::shared_ptr<const Device> device_;
  ibv_cq* completions_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  std::uint8_t gid_index_;
  std::uint32_t inline_bytes_ = 0;
  Endpoint endpoint_;
};

}  // namespace mesh
