// Modes rxe and vm: the kernel's software NIC, on this machine and in a virtual machine.
#include <fmt/format.h>

#include "harness/doctor/examine.h"
#include "harness/doctor/finding.h"

namespace plugfest::doctor {

namespace {

Finding privilege(const Machine& machine) {
  if (machine.has_net_admin()) return {.name = "privilege", .text = "CAP_NET_ADMIN on this machine"};
  return {.name = "privilege",
          .state = State::kBad,
          .text = machine.is_root() ? "no CAP_NET_ADMIN in the initial user namespace, as in most containers: run "
                                      "outside, or start the container with --privileged"
                                    : "only root may create RDMA devices",
          .fix = machine.is_root() ? "" : "sudo " + machine.plugfest() + " run --nic rxe"};
}

bool is_blacklisted(const Machine& machine, const std::string& name) {
  for (const std::string& file : machine.list("/etc/modprobe.d")) {
    const std::string content = "\n" + machine.read("/etc/modprobe.d/" + file).value_or("") + "\n";
    if (content.find("\nblacklist " + name + "\n") != std::string::npos ||
        content.find("\ninstall " + name + " ") != std::string::npos)
      return true;
  }
  return false;
}

Finding module(const Machine& machine) {
  Finding it{.name = "rdma_rxe"};
  switch (machine.module("rdma_rxe")) {
    case Module::kLoaded:
      it.text = "loaded";
      return it;
    case Module::kBuiltIn:
      it.text = "built into the kernel";
      return it;
    case Module::kOnDisk:
      it.state = State::kBad;
      if (machine.number("/proc/sys/kernel/modules_disabled") == 1) {
        it.text = "not loaded, and kernel.modules_disabled is 1: no module can be loaded before the next boot";
      } else if (is_blacklisted(machine, "rdma_rxe")) {
        it.text = "not loaded, and blacklisted in /etc/modprobe.d";
        it.fix = "grep -rn rdma_rxe /etc/modprobe.d   # remove that line, then sudo modprobe rdma_rxe";
      } else {
        it.text = "installed, not loaded";
        it.fix = "sudo modprobe rdma_rxe";
      }
      return it;
    case Module::kAbsent:
    case Module::kUnknown:
      break;
  }
  it.state = State::kBad;
  it.text = fmt::format("kernel {} lacks it; --nic vm boots a kernel that has it", machine.kernel());
  it.fix = package_of_rxe(machine);
  return it;
}

Finding namespaces(const Machine& machine) {
  const auto version = machine.kernel_version();
  if (version >= std::pair(7, 1)) return {.name = "rxe in namespaces", .text = "supported since Linux 7.1"};
  return {.name = "rxe in namespaces",
          .state = State::kNote,
          .text = fmt::format("supported since Linux 7.1, this is {}.{}: all hosts share one network namespace",
                              version.first, version.second)};
}

std::optional<Finding> sharing(const Machine& machine) {
  const auto mode = machine.read("/sys/module/ib_core/parameters/netns_mode");
  if (!mode) return std::nullopt;
  const bool shared = *mode == "Y" || *mode == "1";
  return Finding{
      .name = "RDMA netns mode",
      .text = shared ? "shared: every namespace sees every device" : "exclusive: a device is in one namespace"};
}

Finding emulator(const Machine& machine) {
  const std::string name = "qemu-system-" + machine.architecture();
  const std::string path = machine.program(name);
  if (!path.empty()) return {.name = "QEMU", .text = path};
  return {.name = "QEMU",
          .state = State::kBad,
          .text = fmt::format("no {}", name),
          .fix = install(machine, machine.architecture() == "aarch64" ? "qemu-system-arm" : "qemu-system-x86")};
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
      it.fix = "sudo usermod -aG kvm \"$USER\"   # then log in again";
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
    // Searches the folder itself: packages that are unpacked but not installed have no modules.dep.
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
          .fix = machine.plugfest() + " run --nic vm --kernel FOLDER   # with boot/vmlinuz-… and lib/modules/…"};
}

}  // namespace

std::vector<Finding> examine_rxe(const Machine& machine) {
  std::vector<Finding> findings = {module(machine), privilege(machine), verbs_providers(machine), namespaces(machine)};
  if (const auto it = sharing(machine)) findings.push_back(*it);
  return findings;
}

std::vector<Finding> examine_vm(const Machine& machine) { return {emulator(machine), kvm(machine), kernel(machine)}; }

}  // namespace plugfest::doctor
