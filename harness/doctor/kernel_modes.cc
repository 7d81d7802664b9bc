// Modes rxe and vm: the kernel's software NIC, on this machine and in a virtual machine.
#include <fmt/format.h>

#include "harness/doctor/examine.h"
#include "harness/doctor/finding.h"

namespace plugfest::doctor {
namespace {

Finding privilege(const Machine& machine) {
  if (machine.has_net_admin()) return good("privilege", "CAP_NET_ADMIN on this machine");
  if (machine.is_root())
    return bad("privilege",
               "no CAP_NET_ADMIN in the initial user namespace, as in most containers: run outside, or start the "
               "container with --privileged");
  return bad("privilege", "only root may create RDMA devices", "sudo " + machine.plugfest() + " run --nic rxe");
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
  const std::string name = "rdma_rxe";
  switch (machine.module(name)) {
    case Module::kLoaded:
      return good(name, "loaded");
    case Module::kBuiltIn:
      return good(name, "built into the kernel");
    case Module::kOnDisk:
      if (machine.number("/proc/sys/kernel/modules_disabled") == 1)
        return bad(name, "not loaded, and kernel.modules_disabled is 1: no module can be loaded before the next boot");
      if (is_blacklisted(machine, name))
        return bad(name, "not loaded, and blacklisted in /etc/modprobe.d",
                   "grep -rn rdma_rxe /etc/modprobe.d   # remove that line, then sudo modprobe rdma_rxe");
      return bad(name, "installed, not loaded", "sudo modprobe rdma_rxe");
    case Module::kAbsent:
    case Module::kUnknown:
      break;
  }
  return bad(name, fmt::format("kernel {} lacks it; --nic vm boots a kernel that has it", machine.kernel()),
             package_of_rxe(machine));
}

Finding namespaces(const Machine& machine) {
  const auto version = machine.kernel_version();
  if (version >= std::pair(7, 1)) return good("rxe in namespaces", "supported since Linux 7.1");
  return note("rxe in namespaces",
              fmt::format("supported since Linux 7.1, this is {}.{}: all hosts share one network namespace",
                          version.first, version.second));
}

std::vector<Finding> sharing(const Machine& machine) {
  const auto mode = machine.read("/sys/module/ib_core/parameters/netns_mode");
  if (!mode) return {};
  const bool shared = *mode == "Y" || *mode == "1";
  return {good("RDMA netns mode",
               shared ? "shared: every namespace sees every device" : "exclusive: a device is in one namespace")};
}

Finding emulator(const Machine& machine) {
  const std::string name = "qemu-system-" + machine.architecture();
  const std::string path = machine.program(name);
  if (!path.empty()) return good("QEMU", path);
  return bad("QEMU", "no " + name,
             install(machine, machine.architecture() == "aarch64" ? "qemu-system-arm" : "qemu-system-x86"));
}

Finding kvm(const Machine& machine) {
  const KvmTrial trial = machine.trials().kvm();
  const std::string emulated = ": the guest runs emulated, which is slower";
  switch (trial.state) {
    case KvmTrial::State::kRuns:
      return good("KVM", "works; a guest that has not started within two seconds is restarted with emulation");
    case KvmTrial::State::kAbsent:
      return note("KVM", "no /dev/kvm" + emulated);
    case KvmTrial::State::kNoAccess:
      return note("KVM", "this user may not open /dev/kvm" + emulated,
                  "sudo usermod -aG kvm \"$USER\"   # then log in again");
    case KvmTrial::State::kFails:
      break;
  }
  return note("KVM", fmt::format("/dev/kvm does not work ({}){}", trial.reason, emulated));
}

// The newest kernel below `folder` that has rdma_rxe as a module; empty if none has it.
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
  const std::string name = "guest kernel";
  if (machine.architecture() != "x86_64") return bad(name, "the guest needs an x86-64 machine");
  for (const std::string& folder : {std::string(), machine.cache() + "/kernel"}) {
    const std::string path = kernel_below(machine, folder);
    if (!path.empty()) return good(name, path + ", with rdma_rxe");
  }
  if (machine.program("apt-get").empty())
    return bad(name, "no kernel with rdma_rxe in /boot, and no apt-get to download one",
               machine.plugfest() + " run --nic vm --kernel FOLDER   # with boot/vmlinuz-… and lib/modules/…");
  return note(name, fmt::format("none with rdma_rxe in /boot or {}: the first run downloads the distribution's package "
                                "into that folder, without installing it",
                                machine.cache()));
}

}  // namespace

std::vector<Finding> examine_rxe(const Machine& machine) {
  std::vector<Finding> findings = {module(machine), privilege(machine), verbs_providers(machine), namespaces(machine)};
  append(findings, sharing(machine));
  return findings;
}

std::vector<Finding> examine_vm(const Machine& machine) { return {emulator(machine), kvm(machine), kernel(machine)}; }

}  // namespace plugfest::doctor
