// Connects and accepts that take several calls: what stays at one address between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/abi/base.h"
#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// Buffers of one connect or accept. As NCCL's service thread does, every call gets the same pointers.
class Attempt {
 public:
  /// `handle`: 128 bytes for a connect, none for an accept. Errors: std::system_error.
  Attempt(std::span<const std::byte> handle, std::uint64_t comm_slot);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// The handle's copy, its last byte right before a guard page.
  std::byte* handle();
  void** comm() { return &slots().comm; }
  /// Holds NULL at each call, as for host memory in NCCL.
  abi::DeviceHandle** device_handle() { return &slots().device_handle; }

  /// One call: each fills in code, times, value and damage.
  PointerAnswer connect(const Connect& request);
  PointerAnswer accept(const Accept& request);

 private:
  struct Slots {
    std::byte before[64];
    void* comm;
    std::byte between[64];
    abi::DeviceHandle* device_handle;
    std::byte after[64];
  };
  Slots& slots();
  PointerAnswer finish(PointerAnswer answer, std::uint64_t comm_before);

  Mapping memory_;
  std::size_t handle_size_;
};

}  // namespace plugfest::rank
