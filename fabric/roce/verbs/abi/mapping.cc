#include "fabric/roce/verbs/abi/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/roce/verbs/abi/abi_edge.h"

namespace plugfest::roce::verbs {

Mapping::Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable) {
  // DMA-BUFs have no position: lseek fails.
  const off_t begin = std::max<off_t>(lseek(fd, 0, SEEK_CUR), 0);
  // Access beyond the end of the file raises SIGBUS. Files and DMA-BUFs both report their size to lseek.
  const off_t end = lseek(fd, 0, SEEK_END);
  // Programs register descriptor -1 to find out whether the driver supports DMA-BUFs.
  if (end < 0) fail(errno == EBADF ? EBADF : EOPNOTSUPP);
  lseek(fd, begin, SEEK_SET);
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(end - begin, 0));
  if (length == 0 || offset > size || length > size - offset) fail(size == 0 ? EOPNOTSUPP : EINVAL);
  offset += static_cast<std::uint64_t>(begin);
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
