// Memory behind a file descriptor, mapped into the process: how a NIC without hardware reaches a DMA buffer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugfest::roce::verbs {

class Mapping {
 public:
  /// Maps `length` bytes at `offset` of `fd`, shared with whoever else maps them. Errors: std::system_error with EINVAL
  /// (no length, or more than there is), EOPNOTSUPP (what is behind `fd` cannot be mapped like this).
  Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;

  /// Where the byte at `offset` is.
  void* start() const { return static_cast<std::byte*>(base_) + before_; }

 private:
  void* base_ = nullptr;
  std::size_t before_ = 0;  ///< bytes of the first page that were not asked for
  std::size_t length_ = 0;  ///< with those
};

}  // namespace plugfest::roce::verbs
