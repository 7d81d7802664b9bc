// --nic vm: the kernel's software NIC in a virtual machine.
#include <fmt/format.h>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes.h"

namespace plugfest::doctor {
namespace {

Finding emulator(const Machine& machine) {
  const std::string name = "qemu-system-" + machine.architecture();
  const std::string path = machine.program(name);
  if (!path.empty()) return {.name = "QEMU", .text = path};
  return {.name = "QEMU",
          .state = State::kBad,
          .text = fmt::format("no {}", name),
          .mend = install(machine, machine.architecture() == "aarch64" ? "qemu-system-arm" : "qemu-system-x86")};
}

Finding kvm(const Machine& machine) {
  const KvmTrial trial = machine.trials().kvm();
  Finding it{.name = "KVM", .state = State::kNote};
  switch (trial.state) {
    case KvmTrial::State::kRuns:
      return {.name = "KVM", .text = "a virtual processor ran on it"};
    case KvmTrial::State::kAbsent:
      it.text = "no /dev/kvm: the machine is emulated, which is slower";
      break;
    case KvmTrial::State::kNoAccess:
      it.text = "/dev/kvm may not be opened by this user: the machine is emulated, which is slower";
      it.mend = "sudo usermod -aG kvm \"$USER\"   # then log in again";
      break;
    case KvmTrial::State::kFails:
      it.text = fmt::format("/dev/kvm is there and does not work ({}): the machine is emulated, which is slower",
                            trial.reason);
      break;
  }
  return it;
}

/// Whether a kernel below /lib/modules has rdma_rxe as a module.
bool has_rxe(const Machine& machine, const std::string& release) {
  return machine.read("/lib/modules/" + release + "/modules.dep").value_or("").find("/rdma_rxe.ko") !=
         std::string::npos;
}

Finding kernel(const Machine& machine) {
  for (const std::string& file : machine.list("/boot")) {
    constexpr std::string_view kPrefix = "vmlinuz-";
    if (file.starts_with(kPrefix) && has_rxe(machine, file.substr(kPrefix.size())))
      return {.name = "guest kernel", .text = fmt::format("/boot/{}, with rdma_rxe", file)};
  }
  if (!machine.program("apt-get").empty()) {
    return {.name = "guest kernel",
            .state = State::kNote,
            .text = "none with rdma_rxe in /boot: the distribution's package is fetched when it is first needed"};
  }
  return {.name = "guest kernel", .state = State::kBad, .text = "no kernel with rdma_rxe in /boot", .mend = {}};
}

}  // namespace

std::vector<Finding> examine_vm(const Machine& machine) { return {emulator(machine), kvm(machine), kernel(machine)}; }

}  // namespace plugfest::doctor
