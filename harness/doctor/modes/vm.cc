// Mode vm: the kernel's software NIC in a virtual machine.
#include <fmt/format.h>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/modes.h"

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
      return {.name = "KVM",
              .text = "works; a guest that has not started within two seconds is restarted with emulation"};
    case KvmTrial::State::kAbsent:
      it.text = "no /dev/kvm: the guest runs emulated, which is slower";
      break;
    case KvmTrial::State::kNoAccess:
      it.text = "this user may not open /dev/kvm: the guest runs emulated, which is slower";
      it.mend = "sudo usermod -aG kvm \"$USER\"   # then log in again";
      break;
    case KvmTrial::State::kFails:
      it.text = fmt::format("/dev/kvm does not work ({}): the guest runs emulated, which is slower", trial.reason);
      break;
  }
  return it;
}

/// The newest kernel below `folder` that has rdma_rxe as a module; empty if none has it.
std::string kernel_below(const Machine& machine, const std::string& folder) {
  constexpr std::string_view kPrefix = "vmlinuz-";
  std::string found;
  for (const std::string& file : machine.list(folder + "/boot")) {
    if (!file.starts_with(kPrefix)) continue;
    // Looks into the folder: packages that are unpacked but not installed have no modules.dep.
    const std::string version = file.substr(kPrefix.size());
    if (!machine.list(folder + "/lib/modules/" + version + "/kernel/drivers/infiniband/sw/rxe").empty())
      found = folder + "/boot/" + file;
  }
  return found;
}

Finding kernel(const Machine& machine) {
  if (machine.architecture() != "x86_64")
    return {.name = "guest kernel", .state = State::kBad, .text = "the guest needs an x86-64 machine"};
  for (const std::string& folder : {std::string(), machine.cache() + "/kernel"}) {
    const std::string path = kernel_below(machine, folder);
    if (!path.empty()) return {.name = "guest kernel", .text = path + ", with rdma_rxe"};
  }
  if (!machine.program("apt-get").empty()) {
    return {.name = "guest kernel",
            .state = State::kNote,
            .text = fmt::format(
                "none with rdma_rxe in /boot or {}: the first run downloads the distribution's package into "
                "that folder, without installing it",
                machine.cache())};
  }
  return {.name = "guest kernel",
          .state = State::kBad,
          .text = "no kernel with rdma_rxe in /boot, and no apt-get to download one",
          .mend = machine.plugfest() + " run --nic vm --kernel FOLDER   # with boot/vmlinuz-… and lib/modules/…"};
}

}  // namespace

std::vector<Finding> examine_vm(const Machine& machine) { return {emulator(machine), kvm(machine), kernel(machine)}; }

}  // namespace plugfest::doctor
