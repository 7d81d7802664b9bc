#include "harness/doctor/modes/kvm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace plugfest::doctor {
namespace {

constexpr std::string_view kAbsent = "absent";
constexpr std::string_view kNoAccess = "no access";
constexpr std::string_view kRuns = "runs";

int require(int result, const char* step) {
  if (result < 0) throw std::runtime_error(fmt::format("{}: {}", step, std::strerror(errno)));
  return result;
}

#if defined(__x86_64__)
void run_one_instruction(int kvm, int machine) {
  constexpr std::size_t kPage = 4096;
  constexpr unsigned char kHalt = 0xf4;
  void* const memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  *static_cast<unsigned char*>(memory) = kHalt;
  kvm_userspace_memory_region region{};
  region.guest_phys_addr = kPage;
  region.memory_size = kPage;
  region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
  require(ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
  const int processor = require(ioctl(machine, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
  const int bytes = require(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
  void* const shared = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, processor, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no memory of the virtual processor");
  kvm_sregs segments{};
  require(ioctl(processor, KVM_GET_SREGS, &segments), "KVM_GET_SREGS");
  segments.cs.base = 0;
  segments.cs.selector = 0;
  require(ioctl(processor, KVM_SET_SREGS, &segments), "KVM_SET_SREGS");
  kvm_regs registers{};
  registers.rip = kPage;
  registers.rflags = 2;  // the bit that is always set
  require(ioctl(processor, KVM_SET_REGS, &registers), "KVM_SET_REGS");
  require(ioctl(processor, KVM_RUN, 0), "KVM_RUN");
  const auto reason = static_cast<const kvm_run*>(shared)->exit_reason;
  if (reason != KVM_EXIT_HLT) throw std::runtime_error(fmt::format("KVM_RUN ended for reason {}", reason));
}
#else
void run_one_instruction(int, int machine) { require(ioctl(machine, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU"); }
#endif

}  // namespace

std::string run_virtual_processor() {
  const int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
  if (kvm < 0) {
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) return std::string(kAbsent);
    if (errno == EACCES || errno == EPERM) return std::string(kNoAccess);
    return fmt::format("/dev/kvm: {}", std::strerror(errno));
  }
  try {
    run_one_instruction(kvm, require(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM"));
    return std::string(kRuns);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

KvmTrial read_kvm_answer(const std::string& answer) {
  if (answer == kRuns) return {KvmTrial::State::kRuns, ""};
  if (answer == kAbsent) return {KvmTrial::State::kAbsent, ""};
  if (answer == kNoAccess) return {KvmTrial::State::kNoAccess, ""};
  return {KvmTrial::State::kFails, answer};
}

}  // namespace plugfest::doctor
