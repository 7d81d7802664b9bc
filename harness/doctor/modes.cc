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
  if (trial.restriction) {
    const netns::NamespaceRestriction& restriction = *trial.restriction;
    return bad("namespaces",
               fmt::format("{}{}{}; --nic loopback needs no namespaces", restriction.cause,
                           restriction.alternative.empty() ? "" : ": ", restriction.alternative),
               restriction.command);
  }
  const std::string text = fmt::format("created two hosts and a link as {} in {} ms",
                                       machine.is_root() ? "root" : "an ordinary user", trial.milliseconds);
  if (trial.own_pid_namespace) return good("namespaces", text);
  return note("namespaces", text +
                                "; /proc cannot be mounted in them, as in some containers: processes in hosts survive "
                                "a SIGKILL of plugfest");
}

// Settings that affect ordinary users but not root.
std::vector<Finding> other_users(const Machine& machine) {
  if (!machine.is_root()) return {};
  if (machine.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
    return {note("ordinary users", "AppArmor forbids user namespaces to them",
                 "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")};
  if (machine.number("/proc/sys/kernel/unprivileged_userns_clone") == 0)
    return {note("ordinary users", "kernel.unprivileged_userns_clone forbids user namespaces to them",
                 "sudo sysctl -w kernel.unprivileged_userns_clone=1")};
  return {};
}

// The limit of namespaces of one kind per user. `name`: the setting.
Finding namespaces(const Machine& machine, const std::string& name, const std::string& kind) {
  const auto most = machine.number("/proc/sys/user/" + name);
  if (!most) return note(name, fmt::format("user.{} cannot be read", name));
  if (*most >= kWantedNamespaces) return good(name, fmt::format("{} {}", *most, kind));
  return warning(name, fmt::format("at most {} {} may exist at a time", *most, kind),
                 fmt::format("sudo sysctl -w user.{}=15000", name));
}

// Checks the hard limit. A fabric raises the soft limit itself.
Finding open_files(const Machine& machine) {
  const std::optional<std::uint64_t> limit = machine.limit("Max open files").hard;
  if (!limit) return good("open files", "unlimited");
  if (*limit >= kWantedOpenFiles) return good("open files", fmt::format("up to {}", *limit));
  return note("open files", fmt::format("up to {}: a fabric needs two per host and one per switch", *limit),
              fmt::format("sudo prlimit --pid $$ --nofile={}", kWantedOpenFiles));
}

// The limit of an ordinary user's socket receive buffers.
Finding receive_buffers(const Machine& machine) {
  const std::string name = "receive buffers";
  const auto most = machine.number("/proc/sys/net/core/rmem_max");
  if (!most) return note(name, "net.core.rmem_max cannot be read");
  const std::string text = fmt::format("net.core.rmem_max is {}", *most);
  if (*most >= kWantedReceiveBytes) return good(name, text);
  if (machine.has_net_admin()) return good(name, text + ", a limit that root may exceed");
  return note(name, text + ": NICs keep less data in flight, which slows large transfers",
              fmt::format("sudo sysctl -w net.core.rmem_max={}", kWantedReceiveBytes));
}

std::vector<Finding> selinux(const Machine& machine) {
  const auto enforcing = machine.number("/sys/fs/selinux/enforce");
  if (!enforcing) return {};
  if (*enforcing == 0) return {good("SELinux", "permissive")};
  return {note("SELinux", "enforcing: the audit log names each denied operation", "sudo ausearch -m avc -ts recent")};
}

// The only release that plugfest nccl runs.
constexpr int kNcclOfRuns = 22809;

Finding library(const NcclTrial& trial) {
  const std::string name = "libnccl.so.2", version = plugin::nccl_version_text(trial.version);
  if (trial.path.empty())
    return bad(name, "not found in $NCCL_LIBRARY, the dynamic linker's folders or CUDA's", plugin::kFetchNccl);
  if (trial.version == 0) return bad(name, fmt::format("{}: {}", trial.path, trial.problem), plugin::kFetchNccl);
  const std::string is = fmt::format("{} is NCCL {}: ", trial.path, version);
  if (trial.version / 100 != plugin::kNcclOfTransports)
    return bad(name, is + "nccl:IB and nccl:Socket need 2.28, plugfest nccl needs 2.28.9", plugin::kFetchNccl);
  if (trial.version != kNcclOfRuns)
    return warning(name, is + "enough for nccl:IB and nccl:Socket; plugfest nccl needs 2.28.9", plugin::kFetchNccl);
  return good(name, fmt::format("{}, NCCL {}", trial.path, version));
}

Finding driver(const CudaTrial& trial) {
  const std::string name = "CUDA driver";
  if (!trial.library) return note(name, "none; plugfest needs none, programs that call NCCL need one");
  if (trial.devices == 0)
    return note(name, fmt::format("libcuda.so.1 finds no usable GPU{}",
                                  trial.problem.empty() ? "" : fmt::format(" ({})", trial.problem)));
  return good(name, fmt::format("CUDA {}.{}, {} GPU{}", trial.version / 1000, trial.version % 1000 / 10, trial.devices,
                                trial.devices == 1 ? "" : "s"));
}

struct Tool {
  const char* program;
  const char* package;  // Debian's name; null if the site provides it
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
  if (problem.empty()) return {good("addresses", "127.x.y.z can be used"), receive_buffers(machine)};
  const std::size_t command = problem.find(": run\n");  // separates the error from the command
  const std::string fix =
      command == std::string::npos ? "" : problem.substr(problem.find_first_not_of(' ', command + 6));
  return {bad("addresses", problem.substr(0, command), fix), receive_buffers(machine)};
}

std::vector<Finding> examine_fabric(const Machine& machine) {
  // The trial would load a module from the disk, and an examination must not change the machine.
  const Module netem = machine.module("sch_netem");
  const SandboxTrial trial = machine.trials().sandbox(netem != Module::kOnDisk && netem != Module::kAbsent);
  std::vector<Finding> findings = {sandbox(machine, trial)};
  append(findings, other_users(machine));
  findings.push_back(namespaces(machine, "max_user_namespaces", "user namespaces"));
  findings.push_back(namespaces(machine, "max_net_namespaces", "network namespaces"));
  findings.push_back(open_files(machine));
  findings.push_back(receive_buffers(machine));
  const bool has_netem = netem == Module::kOnDisk || netem == Module::kBuiltIn || trial.netem.value_or(false);
  findings.push_back(has_netem ? good("netem", "available for delay and loss on links")
                               : note("netem", "not in this kernel: only the user-space NIC makes delay and loss"));
  append(findings, selinux(machine));
  return findings;
}

std::vector<Finding> examine_nccl(const Machine& machine) {
  const CudaTrial cuda = machine.trials().cuda();
  std::vector<Finding> findings = {library(machine.trials().nccl()), driver(cuda)};
  if (cuda.devices > 0) {
    const bool peer = machine.exists("/sys/module/nvidia_peermem") || machine.exists("/sys/module/nv_peer_mem");
    findings.push_back(peer ? good("GPUDirect", "nvidia_peermem is loaded")
                            : note("GPUDirect", "nvidia_peermem is not loaded", "sudo modprobe nvidia_peermem"));
  }
  return findings;
}

std::vector<Finding> examine_tools(const Machine& machine) {
  std::vector<Finding> findings;
  for (const Tool& tool : kTools) {
    const std::string path = machine.program(tool.program);
    if (path.empty())
      findings.push_back(note(tool.program, fmt::format("not installed ({})", tool.use),
                              tool.package == nullptr ? "" : install(machine, tool.package)));
    else
      findings.push_back(good(tool.program, fmt::format("{} ({})", path, tool.use)));
  }
  return findings;
}

}  // namespace plugfest::doctor
