// Modes fabric and loopback, nccl, and the tools.
#include <fmt/format.h>

#include <array>

#include "harness/doctor/examine.h"
#include "harness/doctor/finding.h"
#include "harness/plugin/nccl.h"

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
    it.fix = restriction.command;
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
    it.fix = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  } else if (machine.number("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
    it.text = "kernel.unprivileged_userns_clone forbids user namespaces to them";
    it.fix = "sudo sysctl -w kernel.unprivileged_userns_clone=1";
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
    it.fix = fmt::format("sudo sysctl -w user.{}=15000", name);
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
    it.fix = fmt::format("sudo prlimit --pid $$ --nofile={}", kWantedOpenFiles);
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
    it.fix = fmt::format("sudo sysctl -w net.core.rmem_max={}", kWantedReceiveBytes);
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
                 .fix = "sudo ausearch -m avc -ts recent"};
}

/// The only release that plugfest nccl runs.
constexpr int kNcclOfRuns = 22809;

Finding library(const NcclTrial& trial) {
  Finding it{.name = "libnccl.so.2"};
  if (trial.path.empty()) {
    it.state = State::kBad;
    it.text = "not found in $NCCL_LIBRARY, the dynamic linker's folders or CUDA's";
    it.fix = plugin::kFetchNccl;
  } else if (trial.version == 0) {
    it.state = State::kBad;
    it.text = fmt::format("{}: {}", trial.path, trial.problem);
    it.fix = plugin::kFetchNccl;
  } else if (trial.version / 100 != plugin::kNcclOfTransports) {
    it.state = State::kBad;
    it.text = fmt::format("{} is NCCL {}: nccl:IB and nccl:Socket need 2.28, plugfest nccl needs 2.28.9", trial.path,
                          plugin::nccl_version_text(trial.version));
    it.fix = plugin::kFetchNccl;
  } else if (trial.version != kNcclOfRuns) {
    it.state = State::kWarning;
    it.text = fmt::format("{} is NCCL {}: enough for nccl:IB and nccl:Socket; plugfest nccl needs 2.28.9", trial.path,
                          plugin::nccl_version_text(trial.version));
    it.fix = plugin::kFetchNccl;
  } else {
    it.text = fmt::format("{}, NCCL {}", trial.path, plugin::nccl_version_text(trial.version));
  }
  return it;
}

Finding driver(const CudaTrial& trial) {
  Finding it{.name = "CUDA driver", .state = State::kNote};
  if (!trial.library) {
    it.text = "none; plugfest needs none, programs that call NCCL need one";
  } else if (trial.devices == 0) {
    it.text = fmt::format("libcuda.so.1 finds no usable GPU{}",
                          trial.problem.empty() ? "" : fmt::format(" ({})", trial.problem));
  } else {
    it.state = State::kGood;
    it.text = fmt::format("CUDA {}.{}, {} GPU{}", trial.version / 1000, trial.version % 1000 / 10, trial.devices,
                          trial.devices == 1 ? "" : "s");
  }
  return it;
}

struct Tool {
  const char* program;
  const char* package;  ///< Debian's name; null if the site provides it
  const char* use;
};

constexpr std::array kTools = {
    Tool{"ib_write_bw", "perftest", "bandwidth and latency of verbs"},
    Tool{"ibv_devinfo", "ibverbs-utils", "attributes of verbs devices"},
    Tool{"tshark", "tshark", "reading captures"},
    Tool{"iperf3", "iperf3", "TCP, for comparison"},
    Tool{"dot", "graphviz", "drawing fabrics"},
    Tool{"mpirun", nullptr, "MPI"},
    Tool{"srun", nullptr, "Slurm"},
};

}  // namespace

std::vector<Finding> examine_loopback(const Machine& machine) {
  const std::string problem = machine.trials().loopback();
  Finding it{.name = "addresses", .text = "127.x.y.z can be used"};
  if (!problem.empty()) {
    it.state = State::kBad;
    const std::size_t command = problem.find(": run\n");  // separates the error from the command
    it.text = problem.substr(0, command);
    if (command != std::string::npos) it.fix = problem.substr(problem.find_first_not_of(' ', command + 6));
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

std::vector<Finding> examine_nccl(const Machine& machine) {
  const CudaTrial cuda = machine.trials().cuda();
  std::vector<Finding> findings = {library(machine.trials().nccl()), driver(cuda)};
  if (cuda.devices > 0) {
    const bool peer = machine.exists("/sys/module/nvidia_peermem") || machine.exists("/sys/module/nv_peer_mem");
    findings.push_back({.name = "GPUDirect",
                        .state = peer ? State::kGood : State::kNote,
                        .text = peer ? "nvidia_peermem is loaded" : "nvidia_peermem is not loaded",
                        .fix = peer ? "" : "sudo modprobe nvidia_peermem"});
  }
  return findings;
}

std::vector<Finding> examine_tools(const Machine& machine) {
  std::vector<Finding> findings;
  for (const Tool& tool : kTools) {
    const std::string path = machine.program(tool.program);
    Finding it{.name = tool.program};
    it.text = fmt::format("{} ({})", path.empty() ? "not installed" : path, tool.use);
    if (path.empty()) it.state = State::kNote;
    if (path.empty() && tool.package != nullptr) it.fix = install(machine, tool.package);
    findings.push_back(it);
  }
  return findings;
}

}  // namespace plugfest::doctor
