// Modes fabric and loopback: emulated hosts with NICs in user space.
#include <fmt/format.h>

#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

// Each NIC requests 8 MiB, for packets that arrive while its thread does not run. The kernel doubles the granted size.
constexpr long kWantedReceiveBytes = 4 << 20;
constexpr long kWantedNamespaces = 1024;
constexpr std::uint64_t kWantedOpenFiles = 4096;

Finding sandbox(const Machine& machine, const SandboxTrial& trial) {
  Finding it{.name = "namespaces"};
  if (trial.restriction) {
    it.state = State::kBad;
    const netns::NamespaceRestriction& restriction = *trial.restriction;
    it.text = restriction.alternative.empty() ? restriction.cause
                                              : fmt::format("{}: {}", restriction.cause, restriction.alternative);
    it.text += "; --nic loopback needs no namespaces";
    it.mend = restriction.command;
    return it;
  }
  it.text = fmt::format("created two hosts and a link as {} in {} ms", machine.is_root() ? "root" : "an ordinary user",
                        trial.milliseconds);
  if (!trial.own_pid_namespace) {
    it.state = State::kNote;
    it.text +=
        "; /proc cannot be mounted in them, as in some containers: processes in hosts survive a SIGKILL of plugfest";
  }
  return it;
}

/// Settings that affect ordinary users but not root.
std::optional<Finding> other_users(const Machine& machine) {
  if (!machine.is_root()) return std::nullopt;
  Finding it{.name = "ordinary users", .state = State::kNote};
  if (machine.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
    it.text = "AppArmor forbids user namespaces to them";
    it.mend = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  } else if (machine.number("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
    it.text = "kernel.unprivileged_userns_clone forbids user namespaces to them";
    it.mend = "sudo sysctl -w kernel.unprivileged_userns_clone=1";
  } else {
    return std::nullopt;
  }
  return it;
}

/// The limit of namespaces of one kind per user. `name`: the setting.
Finding namespaces(const Machine& machine, const std::string& name, const std::string& kind) {
  const auto most = machine.number("/proc/sys/user/" + name);
  Finding it{.name = name};
  if (!most) {
    it.state = State::kNote;
    it.text = fmt::format("user.{} cannot be read", name);
  } else if (*most < kWantedNamespaces) {
    it.state = State::kWarning;
    it.text = fmt::format("at most {} {} may exist at a time", *most, kind);
    it.mend = fmt::format("sudo sysctl -w user.{}=15000", name);
  } else {
    it.text = fmt::format("{} {}", *most, kind);
  }
  return it;
}

/// Checks the hard limit. A fabric raises the soft limit itself.
Finding open_files(const Machine& machine) {
  const Limit limit = machine.limit("Max open files");
  Finding it{.name = "open files"};
  if (!limit.hard) {
    it.text = "unlimited";
  } else if (*limit.hard >= kWantedOpenFiles) {
    it.text = fmt::format("up to {}", *limit.hard);
  } else {
    it.state = State::kNote;
    it.text = fmt::format("up to {}: a fabric needs two per host and one per switch", *limit.hard);
    it.mend = fmt::format("sudo prlimit --pid $$ --nofile={}", kWantedOpenFiles);
  }
  return it;
}

/// The limit of an ordinary user's socket receive buffers.
Finding receive_buffers(const Machine& machine) {
  const auto most = machine.number("/proc/sys/net/core/rmem_max");
  Finding it{.name = "receive buffers"};
  if (!most) {
    it.state = State::kNote;
    it.text = "net.core.rmem_max cannot be read";
  } else if (*most >= kWantedReceiveBytes || machine.has_net_admin()) {
    it.text = fmt::format("net.core.rmem_max is {}{}", *most,
                          *most < kWantedReceiveBytes ? ", a limit that root may exceed" : "");
  } else {
    it.state = State::kNote;
    it.text = fmt::format("net.core.rmem_max is {}: NICs keep less data in flight, which slows large transfers", *most);
    it.mend = fmt::format("sudo sysctl -w net.core.rmem_max={}", kWantedReceiveBytes);
  }
  return it;
}

std::optional<Finding> selinux(const Machine& machine) {
  const auto enforcing = machine.number("/sys/fs/selinux/enforce");
  if (!enforcing) return std::nullopt;
  if (*enforcing == 0) return Finding{.name = "SELinux", .text = "permissive"};
  return Finding{.name = "SELinux",
                 .state = State::kNote,
                 .text = "enforcing: the audit log names each denied operation",
                 .mend = "sudo ausearch -m avc -ts recent"};
}

}  // namespace

std::vector<Finding> examine_loopback(const Machine& machine) {
  const std::string problem = machine.trials().loopback();
  Finding it{.name = "addresses", .text = "127.x.y.z can be used"};
  if (!problem.empty()) {
    it.state = State::kBad;
    const std::size_t command = problem.find(": run\n");  // separates the error from the command
    it.text = problem.substr(0, command);
    if (command != std::string::npos) it.mend = problem.substr(problem.find_first_not_of(' ', command + 6));
  }
  return {it, receive_buffers(machine)};
}

std::vector<Finding> examine_fabric(const Machine& machine) {
  // The trial would load a module from the disk, and an examination must not change the machine.
  const Module netem = machine.module("sch_netem");
  const SandboxTrial trial = machine.trials().sandbox(netem != Module::kOnDisk && netem != Module::kAbsent);
  std::vector<Finding> findings = {sandbox(machine, trial)};
  if (const auto it = other_users(machine)) findings.push_back(*it);
  findings.push_back(namespaces(machine, "max_user_namespaces", "user namespaces"));
  findings.push_back(namespaces(machine, "max_net_namespaces", "network namespaces"));
  findings.push_back(open_files(machine));
  findings.push_back(receive_buffers(machine));
  const bool has_netem = netem == Module::kOnDisk || netem == Module::kBuiltIn || trial.netem.value_or(false);
  findings.push_back({.name = "netem",
                      .state = has_netem ? State::kGood : State::kNote,
                      .text = has_netem ? "available for delay and loss on links"
                                        : "not in this kernel: only the NIC in user space makes delay and loss"});
  if (const auto it = selinux(machine)) findings.push_back(*it);
  return findings;
}

}  // namespace plugfest::doctor
