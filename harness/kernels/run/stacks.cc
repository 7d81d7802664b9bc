#include "harness/kernels/run/stacks.h"

#include <sys/mman.h>

#include "fabric/system/file.h"

namespace plugfest::kernels {
namespace {

// Each guard takes two of the 65,530 mappings that Linux gives a process.
constexpr std::size_t kMaxGuards = 24'576;

}  // namespace

std::vector<std::byte*> Stacks::take(std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < count) {
    const std::size_t missing = count - free_.size(), stride = Stacks::kBytes + kGuard;
    void* const memory = ::mmap(nullptr, missing * stride, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw_errno("map the stacks of a kernel's threads");
    auto* const begin = static_cast<std::byte*>(memory);
    for (std::size_t i = 0; i < missing; ++i, ++made_) {
      if (made_ < kMaxGuards && ::mprotect(begin + i * stride, kGuard, PROT_NONE) != 0) made_ = kMaxGuards;
      free_.push_back(begin + i * stride + kGuard);
    }
  }
  const std::vector<std::byte*> taken(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  return taken;
}

void Stacks::give_back(const std::vector<std::byte*>& stacks) {
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), stacks.begin(), stacks.end());
}

Stacks& the_stacks() {
  static auto* const stacks = new Stacks;
  return *stacks;
}

}  // namespace plugfest::kernels
