// Maps a dma-buf or file into the process, because the NIC accesses memory by CPU loads and stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugfest::roce::verbs {

/// A shared mapping of a file descriptor. Unmaps it on destruction.
class Mapping {
 public:
  /// Maps `length` bytes of `fd` with MAP_SHARED, from `offset` after the file's position, which stays: the emulated
  /// GPU exports a part of its memory as a file whose position is the start of the part. Errors: std::system_error with
  /// EBADF, EINVAL (length 0 or beyond the end of the file), EOPNOTSUPP (`fd` has no size or cannot be mapped).
  Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;

  /// Address of the byte at `offset`.
  void* start() const { return static_cast<std::byte*>(base_) + before_; }

 private:
  void* base_ = nullptr;
  std::size_t before_ = 0;  ///< bytes between the start of the page and `offset`
  std::size_t length_ = 0;  ///< length of the mapping, including before_
};

}  // namespace plugfest::roce::verbs
