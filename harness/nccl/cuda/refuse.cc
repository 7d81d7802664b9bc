#include "harness/nccl/cuda/refuse.h"

#include <unistd.h>

#include "harness/nccl/cuda/memory.h"

namespace plugfest::nccl {

void refuse(const std::string& reason) {
  const std::string line = kRefusal + reason + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kRefusalCode);
}

}  // namespace plugfest::nccl

namespace plugfest::nccl::cuda {

DeviceViews device_views;

}  // namespace plugfest::nccl::cuda
