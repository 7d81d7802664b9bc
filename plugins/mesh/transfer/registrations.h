// Memory that NCCL registers on a comm.
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
  /// One for each lane; lanes of one NIC share theirs. Null for memory of 0 bytes.
  std::array<ibv_mr*, kMaxLanes> regions = {};
  std::vector<std::shared_ptr<const Device>> devices;  ///< of the lanes

  Registration() = default;
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  bool covers(const void* data, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    return first >= begin && bytes <= size && first - begin <= size - bytes;
  }
};

/// The registrations of one comm. Thread-safe; no member waits for transfers.
class Registrations {
 public:
  /// `devices`: one for each lane. `access`: flags of `ibv_reg_mr`.
  Registrations(std::vector<std::shared_ptr<const Device>> devices, int access);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// Registers host memory. Errors: Failure.
  Registration* add(void* data, std::size_t bytes);
  /// After the call the NIC does not access the memory, whatever is outstanding. Errors: Failure for a registration of
  /// another comm.
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
  std::unordered_set<Registration*> registrations_;
};

}  // namespace mesh
