// Connects and accepts that take several calls: their buffers, which keep their addresses between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/abi/base.h"
#include "harness/abi/net.h"
#include "harness/rank/plugin_calls.h"

namespace plugfest::rank {

/// Records the type of a device, for accepts of its listeners.
void note_device_type(int device, const abi::newest::Properties& properties);
void note_listener(void* listen_comm, int device);

/// Buffers of one connect or accept. Every call passes the same pointers, as NCCL's service thread does.
class Attempt {
 public:
  /// `handle`: 128 bytes for a connect, none for an accept. Errors: std::system_error.
  Attempt(std::span<const std::byte> handle, std::uint64_t comm_slot);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// The copy of the handle. Its last byte lies before a guard page.
  std::byte* handle();
  void** comm() { return &slots().comm; }
  /// The devHandle argument. It points to NULL before each call, as in NCCL for host memory. For the accept of an
  /// UNPACK device it points to a struct with the type and the version of the device, which exists as long as the
  /// attempt.
  abi::DeviceHandle** device_handle() { return &slots().device_handle; }

  void forbid();

  PointerAnswer connect(std::uint64_t context, std::int32_t device, bool with_device_handle);
  PointerAnswer accept(std::uint64_t listener, bool with_device_handle);

 private:
  struct Slots {
    std::byte before[64];
    void* comm;
    std::byte between[64];
    abi::DeviceHandle* device_handle;
    std::byte after[64];
    abi::DeviceHandle unpack;
    std::byte after_unpack[64];
  };
  Slots& slots();
  PointerAnswer finish(PointerAnswer answer, std::uint64_t comm_before);

  Mapping memory_;
  std::size_t handle_size_;
};

/// Executes one call of a connect or accept that has an attempt number.
CalledAnswer execute_attempt(const Call& request);

}  // namespace plugfest::rank
