// Binds and unbinds memory windows.
#include "fabric/roce/memory/memory_window.h"

#include <cerrno>
#include <mutex>
#include <system_error>

namespace plugfest::roce {

namespace {

constexpr unsigned kWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// IBV_ACCESS_LOCAL_WRITE has no meaning for a window, but hardware accepts it and programs set it.
constexpr unsigned kOfferedAccess = kWriting | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;

}  // namespace

MemoryWindow::MemoryWindow(ProtectionDomain& domain, ibv_mw_type type) : domain_(domain), type_(type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    throw std::system_error(EINVAL, std::generic_category(), "memory window type");
  MemoryTable& memory = domain.memory();
  if (memory.lock().in_child()) throw std::system_error(EIO, std::generic_category(), "memory window after fork");
  const std::lock_guard lock(memory.lock());
  key_ = memory.add(*this);
}

MemoryWindow::~MemoryWindow() {
  MemoryTable& memory = domain_.memory();
  if (memory.lock().in_child()) return;
  const std::lock_guard lock(memory.lock());
  unbind();
  memory.remove(key_);
}

std::uint32_t MemoryWindow::key() const {
  MemoryTable& memory = domain_.memory();
  if (memory.lock().in_child()) return key_;
  const std::lock_guard lock(memory.lock());
  return key_;
}

bool MemoryWindow::bind(const WindowBinding& binding, const ProtectionDomain& domain, std::uint32_t queue_pair_number) {
  if (&domain != &domain_ || (binding.access & ~kOfferedAccess) != 0) return false;
  if (type_ == IBV_MW_TYPE_2 && (region_ != nullptr || binding.length == 0)) return false;
  if (type_ == IBV_MW_TYPE_1 && (binding.access & IBV_ACCESS_ZERO_BASED) != 0) return false;
  MemoryTable& memory = domain_.memory();
  MemoryRegion* region = nullptr;
  std::byte* bytes = nullptr;
  if (binding.length > 0) {
    unsigned needed = IBV_ACCESS_MW_BIND;
    if ((binding.access & kWriting) != 0) needed |= IBV_ACCESS_LOCAL_WRITE;
    region = memory.find(binding.region_key);
    bytes = region == nullptr ? nullptr : region->find(domain, binding.address, binding.length, needed);
    if (bytes == nullptr) return false;
  }
  unbind();
  key_ = binding.key;
  memory.set_key(key_);
  region_ = region;
  bytes_ = bytes;
  first_ = (binding.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : binding.address;
  length_ = binding.length;
  access_ = binding.access;
  queue_pair_number_ = queue_pair_number;
  if (region_ != nullptr) ++region_->windows_;
  return true;
}

bool MemoryWindow::invalidate(std::uint32_t key, std::uint32_t queue_pair_number) {
  if (key != key_ || !is_bound_for(queue_pair_number)) return false;
  unbind();
  return true;
}

void MemoryWindow::unbind() {
  if (region_ != nullptr) --region_->windows_;
  region_ = nullptr;
}

std::byte* MemoryWindow::find(const ProtectionDomain& domain, std::uint32_t queue_pair_number, std::uint64_t address,
                              std::uint64_t length, unsigned needed) const {
  if (region_ == nullptr || &domain != &domain_ || (access_ & needed) != needed) return nullptr;
  if (type_ == IBV_MW_TYPE_2 && queue_pair_number != queue_pair_number_) return nullptr;
  if (address < first_ || length > length_ || address - first_ > length_ - length) return nullptr;
  return bytes_ + (address - first_);
}

}  // namespace plugfest::roce
