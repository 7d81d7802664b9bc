// Encodes a request as the pointer that NCCL holds, so that stale and invalid pointers are detected.
#pragma once

#include <cstdint>
#include <optional>

namespace mesh {

/// Identifies one outstanding send or receive. Its pointer is never NULL and never 1, the value that NCCL presets.
struct RequestId {
  std::uint16_t comm = 0;        ///< index of the comm
  std::uint8_t comm_serial = 0;  ///< differs between comms with the same index
  std::uint8_t index = 0;        ///< of the request in its comm
  std::uint16_t generation = 0;  ///< differs between requests with the same index

  void* pointer() const {
    return reinterpret_cast<void*>(kMark << 48 | std::uintptr_t{comm_serial} << 40 | std::uintptr_t{index} << 32 |
                                   std::uintptr_t{generation} << 16 | comm);
  }
  /// Returns nullopt if `pointer` is not the pointer of a request.
  static std::optional<RequestId> from(const void* pointer) {
    const auto value = reinterpret_cast<std::uintptr_t>(pointer);
    if (value >> 48 != kMark) return std::nullopt;
    return RequestId{.comm = static_cast<std::uint16_t>(value),
                     .comm_serial = static_cast<std::uint8_t>(value >> 40),
                     .index = static_cast<std::uint8_t>(value >> 32),
                     .generation = static_cast<std::uint16_t>(value >> 16)};
  }

 private:
  static constexpr std::uintptr_t kMark = 0x4d53;
};

}  // namespace mesh
