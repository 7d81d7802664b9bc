#include "fabric/roce/memory/memory.h"

#include <cerrno>
#include <limits>
#include <mutex>

#include "fabric/roce/memory/mapping.h"
#include "fabric/system/fault_guard.h"
#include "fabric/system/file.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

constexpr unsigned kOfferedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                    IBV_ACCESS_HUGETLB;

// The kernel pins pages for writing if one of these is set (ib_access_writable).
constexpr unsigned kPinnedForWriting =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

[[noreturn]] void fail(int error) { throw_errno("register memory", error); }

void check(std::uint64_t start, std::size_t length, unsigned access) {
  if ((access & ~(kOfferedAccess | IBV_ACCESS_OPTIONAL_RANGE)) != 0) fail(EOPNOTSUPP);
  const bool written_by_peers = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (written_by_peers && (access & IBV_ACCESS_LOCAL_WRITE) == 0) fail(EINVAL);
  if (length > 0 && start > std::numeric_limits<std::uint64_t>::max() - (length - 1)) fail(EINVAL);
}

}  // namespace

MemoryRegion::MemoryRegion(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova,
                           unsigned access)
    : domain_(&domain), address_(static_cast<std::byte*>(address)), length_(length), iova_(iova), access_(access) {
  install_fault_handlers();
  check(reinterpret_cast<std::uintptr_t>(address), length, access);
  check(iova, length, access);
  if (!can_access(address, length, (access & kPinnedForWriting) != 0)) fail(EFAULT);
  MemoryTable& memory = domain.memory();
  if (memory.lock().in_child()) throw_errno("register memory after fork()", EIO);
  const std::lock_guard lock(memory.lock());
  key_ = memory.add(*this);
}

void MemoryRegion::change(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova,
                          unsigned access) {
  check(reinterpret_cast<std::uintptr_t>(address), length, access);
  check(iova, length, access);
  if (!can_access(address, length, (access & kPinnedForWriting) != 0)) fail(EFAULT);
  NicLock& nic = domain.memory().lock();
  if (nic.in_child()) throw_errno("register memory after fork()", EIO);
  const std::lock_guard lock(nic);  // waits for threads that access the memory
  if (windows_ != 0) throw_errno("change a memory region with bound windows", EBUSY);
  domain_ = &domain;
  address_ = static_cast<std::byte*>(address);
  length_ = length;
  iova_ = iova;
  access_ = access;
}

MemoryRegion::~MemoryRegion() {
  MemoryTable& memory = domain_->memory();
  if (memory.lock().in_child()) return;
  const std::lock_guard lock(memory.lock());  // waits for threads that access the memory
  memory.unbind_all(*this);
  memory.remove(key_);
}

std::size_t MemoryRegion::bound_windows() const {
  MemoryTable& memory = domain_->memory();
  if (memory.lock().in_child()) return 0;
  const std::lock_guard lock(memory.lock());
  return windows_;
}

std::uint32_t MemoryTable::add(Entry entry) {
  constexpr int kAttempts = 1 << 10;  // most of the 2^24 indexes are free
  for (int i = 0; i < kAttempts; ++i) {
    entry.key = random_number();
    if (index_of(entry.key) != 0 && entries_.try_emplace(index_of(entry.key), entry).second) return entry.key;
  }
  throw_errno("find an unused memory key", ENOMEM);
}

std::uint32_t MemoryTable::add(MemoryRegion& region) { return add(Entry{.region = &region}); }

std::uint32_t MemoryTable::add(MemoryWindow& window) {
  ++windows_;
  return add(Entry{.window = &window});
}

std::byte* MemoryTable::find_for_peer(const ProtectionDomain& domain, std::uint32_t queue_pair_number,
                                      std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                      unsigned needed) const {
  const auto found = entries_.find(index_of(key));
  if (found == entries_.end() || found->second.key != key) return nullptr;
  if (found->second.region != nullptr) return found->second.region->find(domain, address, length, needed);
  return found->second.window->find(domain, queue_pair_number, address, length, needed);
}

void MemoryTable::unbind_all(const MemoryRegion& region) {
  if (windows_ == 0) return;
  for (const auto& [index, entry] : entries_)
    if (entry.window != nullptr && entry.window->is_bound_to(region)) entry.window->unbind();
}

void MemoryTable::unbind_all(std::uint32_t queue_pair_number) {
  if (windows_ == 0) return;
  for (const auto& [index, entry] : entries_)
    if (entry.window != nullptr && entry.window->is_bound_for(queue_pair_number)) entry.window->unbind();
}

namespace {

constexpr unsigned kWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// IBV_ACCESS_LOCAL_WRITE has no meaning for a window, but hardware accepts it and programs set it.
constexpr unsigned kOfferedByWindows =
    kWriting | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;

}  // namespace

MemoryWindow::MemoryWindow(ProtectionDomain& domain, ibv_mw_type type) : domain_(domain), type_(type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) throw_errno("create a memory window of this type", EINVAL);
  MemoryTable& memory = domain.memory();
  if (memory.lock().in_child()) throw_errno("create a memory window after fork()", EIO);
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
  if (&domain != &domain_ || (binding.access & ~kOfferedByWindows) != 0) return false;
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
