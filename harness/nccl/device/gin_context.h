// What the functions of NCCL's device API do in a kernel, for the network (GIN) with NCCL's proxy: they write
// descriptors into a queue, from which the proxy calls the plugin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/nccl/device/device_comm_2_28.h"

namespace plugfest::nccl::device {

/// Bytes of a window, from an offset on.
struct Place {
  const v2_28::Window* window = nullptr;
  std::size_t offset = 0;
};

/// One GIN context of a device communicator: ncclGin. Source: nccl_device/gin/proxy/gin_proxy.h of NCCL 2.28.9.
/// Thread safety: one thread.
class GinContext {
 public:
  /// `comm` must outlive this object. `number` < comm.gin_contexts, and its type is kGinProxy.
  GinContext(const v2_28::DeviceComm& comm, std::size_t number);

  /// Puts `bytes` bytes of this rank's window into the window of `peer`, and then adds 1 to a signal of `peer`. Earlier
  /// writes to the source are visible to the proxy. Returns false if the queue is full: a kernel tries again.
  bool put(int peer, Place target, Place source, std::size_t bytes, std::uint32_t signal);
  /// Adds 1 to a signal of `peer`. Returns as put().
  bool signal(int peer, std::uint32_t signal) { return put(peer, {}, {}, 0, signal); }
  /// The value of a signal of this rank. What was put before the signal is visible then.
  std::uint64_t read_signal(std::uint32_t signal) const;
  /// Sets a signal of this rank to 0, while no other rank adds to it.
  void reset_signal(std::uint32_t signal) const;
  /// Whether the sources of all puts to `peer` may be written again.
  bool is_flushed(int peer) const;

 private:
  const v2_28::DeviceComm& comm_;
  const std::size_t number_;
  const v2_28::GinQueues& queues_;
};

}  // namespace plugfest::nccl::device
