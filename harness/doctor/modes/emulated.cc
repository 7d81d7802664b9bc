// The fabric: emulated hosts whose NICs run in user space. What plugfest run does unless told otherwise.
#include <fmt/format.h>

#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

// Each NIC asks for 8 MiB, for what arrives while its thread does not run; the kernel doubles what it grants.
constexpr long kWantedReceiveBytes = 4 << 20;
constexpr long kWantedNamespaces = 1024;
constexpr std::uint64_t kWantedOpenFiles = 4096;

Finding sandbox(const Machine& machine, const SandboxTrial& trial) {
  Finding it{.name = "namespaces"};
  if (trial.obstacle) {
    it.state = State::kBad;
    const netns::NamespaceRestriction& obstacle = *trial.obstacle;
    it.text =
        obstacle.alternative.empty() ? obstacle.cause : fmt::format("{}: {}", obstacle.cause, obstacle.alternative);
    it.text += "; --nic loopback needs none";
    it.mend = obstacle.command;
    return it;
  }
  it.text = fmt::format("two hosts made and joined by a link, as {}, in {} ms",
                        machine.is_root() ? "root" : "an ordinary user", trial.milliseconds);
  if (!trial.own_processes) {
    it.state = State::kNote;
    it.text += "; no /proc can be mounted in them, as in some containers: what hosts have started outlives a SIGKILL";
  }
  return it;
}

/// What root does not notice and everybody else will.
std::optional<Finding> other_users(const Machine& machine) {
  if (!machine.is_root()) return std::nullopt;
  Finding it{.name = "ordinary users", .state = State::kNote};
  if (machine.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
    it.text = "AppArmor bars their user namespaces";
    it.mend = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  } else if (machine.number("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
    it.text = "kernel.unprivileged_userns_clone bars their user namespaces";
    it.mend = "sudo sysctl -w kernel.unprivileged_userns_clone=1";
  } else {
    return std::nullopt;
  }
  return it;
}

/// A limit on how many namespaces of a kind one user may have.
Finding namespaces(const Machine& machine, const std::string& name, const std::string& kind) {
  const auto most = machine.number("/proc/sys/user/" + name);
  Finding it{.name = name};
  if (!most) {
    it.state = State::kNote;
    it.text = "not shown here";
  } else if (*most < kWantedNamespaces) {
    it.state = State::kWarning;
    it.text = fmt::format("{}: no more {} may be there at a time", *most, kind);
    it.mend = fmt::format("sudo sysctl -w user.{}=15000", name);
  } else {
    it.text = fmt::format("{} {}", *most, kind);
  }
  return it;
}

/// A fabric raises the limit itself, as far as it may.
Finding open_files(const Machine& machine) {
  const Limit limit = machine.limit("Max open files");
  Finding it{.name = "open files"};
  if (!limit.hard) {
    it.text = "unlimited";
  } else if (*limit.hard >= kWantedOpenFiles) {
    it.text = fmt::format("up to {}", *limit.hard);
  } else {
    it.state = State::kNote;
    it.text = fmt::format("up to {}: two are needed for each host, one for each switch", *limit.hard);
    it.mend = fmt::format("sudo prlimit --pid $$ --nofile={}", kWantedOpenFiles);
  }
  return it;
}

/// A socket's receive buffer of an ordinary user ends there.
Finding receive_buffers(const Machine& machine) {
  const auto most = machine.number("/proc/sys/net/core/rmem_max");
  Finding it{.name = "receive buffers"};
  if (!most) {
    it.state = State::kNote;
    it.text = "net.core.rmem_max is not shown here";
  } else if (*most >= kWantedReceiveBytes || machine.rules_the_machine()) {
    it.text = fmt::format("net.core.rmem_max is {}{}", *most,
                          *most < kWantedReceiveBytes ? ", which does not bind root" : "");
  } else {
    it.state = State::kNote;
    it.text =
        fmt::format("net.core.rmem_max is {}: NICs keep less in flight, so that large transfers are slower", *most);
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
                 .text = "enforcing: where it refuses something, the audit log names it",
                 .mend = "sudo ausearch -m avc -ts recent"};
}

}  // namespace

std::vector<Finding> examine_loopback(const Machine& machine) {
  const std::string problem = machine.trials().loopback();
  Finding it{.name = "addresses", .text = "127.x.y.z can be taken"};
  if (!problem.empty()) {
    it.state = State::kBad;
    const std::size_t command = problem.find(": run\n");  // as the error puts it
    it.text = problem.substr(0, command);
    if (command != std::string::npos) it.mend = problem.substr(problem.find_first_not_of(' ', command + 6));
  }
  return {it, receive_buffers(machine)};
}

std::vector<Finding> examine_fabric(const Machine& machine) {
  // A module on the disk would be loaded by the trial, and a look must not change the machine.
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
                      .text = has_netem ? "there, for delay and loss on links"
                                        : "not in this kernel: delay and loss come from the NIC in user space alone"});
  if (const auto it = selinux(machine)) findings.push_back(*it);
  return findings;
}

}  // namespace plugfest::doctor
