#include "fabric/roce/verbs/abi/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "fabric/roce/verbs/abi/abi_edge.h"

namespace plugfest::roce::verbs {

Mapping::Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable) {
  // Access beyond the end of the file raises SIGBUS. Files and dma-bufs both report their size to lseek.
  const off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0) fail(EOPNOTSUPP);
  const auto size = static_cast<std::uint64_t>(end);
  if (length == 0 || offset > size || length > size - offset) fail(size == 0 ? EOPNOTSUPP : EINVAL);
  before_ = offset % static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  length_ = before_ + length;
  base_ = mmap(nullptr, length_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
               static_cast<off_t>(offset - before_));
  if (base_ == MAP_FAILED) fail(EOPNOTSUPP);
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), before_(other.before_), length_(other.length_) {}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, length_);
}

}  // namespace plugfest::roce::verbs
