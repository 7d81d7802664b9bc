// Memory that a comm may send from or receive to.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "plugins/mesh/device/device.h"
#include "plugins/mesh/handshake/message.h"

namespace mesh {

/// Memory registered on one comm; NCCL's mhandle points to it.
struct Registration {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  bool of_gpu = false;
  /// For each lane; lanes of one NIC have the same. 0 for memory of 0 bytes.
  std::array<std::uint32_t, kMaxLanes> local_keys = {}, remote_keys = {};
  std::vector<std::shared_ptr<const Device>> devices;       ///< of the lanes
  std::vector<std::unique_ptr<RegionCache::Range>> ranges;  ///< one for each NIC

  bool covers(const void* data, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    return first >= begin && bytes <= size && first - begin <= size - bytes;
  }
};

/// What to register.
struct MemoryToRegister {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool of_gpu = false;
  int dma_buf = -1;  ///< of the memory's pages, if it is not negative
  std::uint64_t dma_buf_offset = 0;
};

/// The registrations of one comm. Thread-safe; no member waits for transfers.
class Registrations {
 public:
  /// `devices`: one for each lane. `access`: flags of `ibv_reg_mr`.
  Registrations(std::vector<std::shared_ptr<const Device>> devices, int access);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// Shares the regions of other comms of the process that cover the memory. Errors: Failure.
  Registration* add(const MemoryToRegister& memory);
  /// Whether the registration belongs to this comm, and the NIC may access its memory after `remove`, because others
  /// share a region.
  bool is_shared(const Registration* registration);
  /// After the call the NIC does not access the memory for this comm, whatever is outstanding, unless it is shared.
  /// Errors: Failure for a registration of another comm.
  void remove(Registration* registration);
  /// Calls `use` if the peer may write `bytes` at `address` with this remote key, and returns whether it may. The
  /// memory stays registered during the call.
  bool use_remotely(std::uint64_t address, std::uint64_t bytes, std::uint32_t key, const std::function<void()>& use);
  /// Removes all registrations and releases the devices. Later calls of `add` fail.
  void close();

 private:
  const int access_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Device>> devices_;
  std::unordered_set<const Registration*> registrations_;
};

}  // namespace mesh
