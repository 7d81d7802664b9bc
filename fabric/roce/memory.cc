// Registers memory regions with their NIC.
#include "fabric/roce/memory.h"

#include <cerrno>
#include <limits>
#include <system_error>

#include "fabric/roce/nic.h"
#include "fabric/roce/nic_engine.h"
#include "fabric/roce/random.h"

namespace plugfest::roce {

namespace {

constexpr unsigned kOfferedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

void check(std::uint64_t start, std::size_t length, unsigned access) {
  auto fail = [](int error) { throw std::system_error(error, std::generic_category(), "memory region"); };
  if ((access & ~(kOfferedAccess | IBV_ACCESS_OPTIONAL_RANGE)) != 0) fail(EOPNOTSUPP);
  const bool written_by_peers = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (written_by_peers && (access & IBV_ACCESS_LOCAL_WRITE) == 0) fail(EINVAL);
  if (length > 0 && start > std::numeric_limits<std::uint64_t>::max() - (length - 1)) fail(EINVAL);
}

}  // namespace

MemoryRegion::MemoryRegion(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova,
                           unsigned access)
    : domain_(domain), address_(static_cast<std::byte*>(address)), length_(length), iova_(iova), access_(access) {
  check(reinterpret_cast<std::uintptr_t>(address), length, access);
  check(iova, length, access);
  NicEngine& nic = domain.nic().engine();
  if (nic.in_child()) throw std::system_error(EIO, std::generic_category(), "memory region after fork");
  const std::lock_guard lock(nic.mutex());
  key_ = nic.memory().add(*this);
}

MemoryRegion::~MemoryRegion() {
  NicEngine& nic = domain_.nic().engine();
  if (nic.in_child()) return;
  const std::lock_guard lock(nic.mutex());  // whoever touches memory holds it
  nic.memory().remove(key_);
}

std::uint32_t MemoryTable::add(const MemoryRegion& region) {
  for (;;) {
    const std::uint32_t key = random_number();
    if (key != 0 && regions_.try_emplace(key, &region).second) return key;
  }
}

}  // namespace plugfest::roce
