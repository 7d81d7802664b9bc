#include "harness/nccl/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/plugin/nccl.h"

namespace plugfest::nccl {
namespace {

// Sets a variable of NCCL unless the user has set it.
void set_default(control::Environment& environment, const char* name, const char* value) {
  if (std::getenv(name) == nullptr) set(environment, name, value);
}

}  // namespace

std::vector<Placement> place_ranks(const topology::Graph& graph, std::size_t ranks) {
  const std::size_t hosts = graph.hosts.size(), count = ranks == 0 ? hosts : ranks;
  std::vector<Placement> placements(count);
  std::vector<int> used(hosts);
  for (std::size_t i = 0; i < count; ++i) {
    placements[i].host = count <= hosts ? i : i * hosts / count;
    placements[i].device = used[placements[i].host]++;
  }
  for (Placement& placement : placements) placement.ranks_of_host = used[placement.host];
  return placements;
}

void set(control::Environment& environment, const std::string& name, std::optional<std::string> value) {
  std::erase_if(environment, [&](const auto& one) { return one.first == name; });
  environment.emplace_back(name, std::move(value));
}

std::string stand_in_driver() { return bed::library_folder() + "/nccl/libcuda.so.1"; }

void add_stand_ins(control::Environment& environment) { bed::search_first_in("nccl", environment); }

std::string line_in(const std::string& output, const std::string& start) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) return line.substr(start.size());
  return "";
}

std::string missing_stand_in(const std::string& output) { return line_in(output, kRefusal); }

control::Environment rank_environment(const bed::TestBed& bed, const std::string& plugin, const topology::Host& host,
                                      const Placement& placement, bool emulated) {
  control::Environment environment = bed.subject(plugin, 0).environment;
  if (plugin::is_builtin(plugin)) {
    set(environment, "NCCL_NET_PLUGIN", "none");
    set(environment, "NCCL_NET", plugin.substr(plugin.find(':') + 1));
  } else {
    set(environment, "NCCL_NET_PLUGIN", plugin);
  }
  // NCCL 2.28.9 calls a null pointer when it looks for GPU-initiated networking on an IB device without a GPU, even
  // when it falls back to IB.
  if (emulated || plugin::is_builtin(plugin)) set_default(environment, "NCCL_GIN_TYPE", "2");
  // Ranks find each other on the network that all hosts reach.
  set(environment, "NCCL_SOCKET_IFNAME", "oob0");
  set(environment, "NCCL_HOSTID", host.name);
  set(environment, "NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", kLogFd));
  set_default(environment, "NCCL_DEBUG", "INFO");
  if (!emulated) return environment;
  add_stand_ins(environment);
  set(environment, "PLUGFEST_NCCL_DEVICES", std::to_string(placement.ranks_of_host));
  // NCCL sees no PCI switch between GPU and NIC, and would keep device memory from plugins that accept it.
  set_default(environment, "NCCL_NET_GDR_LEVEL", "SYS");
  set_default(environment, "NCCL_NET_GDR_READ", "1");
  // The kernels on the CPU do not support these.
  set_default(environment, "NCCL_PROTO", "^LL128");
  set_default(environment, "NCCL_PAT_ENABLE", "0");
  set_default(environment, "NCCL_CUMEM_HOST_ENABLE", "0");
  set_default(environment, "NCCL_RAS_ENABLE", "0");
  return environment;
}

control::Environment device_api_environment(DeviceApi api) {
  control::Environment environment;
  if (api == DeviceApi::kNone) return environment;
  set(environment, cuda::kVirtualMemoryVariable, "1");
  if (api == DeviceApi::kDomain) {
    set(environment, cuda::kNvlinkDomainVariable, "1");
    // NVLinks between hosts are fast, so that NCCL would take many.
    set_default(environment, "NCCL_MAX_NCHANNELS", "2");
  } else {
    set_default(environment, "NCCL_P2P_DISABLE", "1");
  }
  // The kernels on the CPU do not support these.
  set_default(environment, "NCCL_ALGO", "^NVLS,NVLSTree");
  set_default(environment, "NCCL_LOCAL_REGISTER", "0");
  set_default(environment, "NCCL_SYM_KERNEL", "none");
  return environment;
}

control::Environment algorithm_environment(const std::string& algorithm) {
  control::Environment environment;
  if (algorithm.empty()) return environment;
  if (algorithm == "ring") set(environment, "NCCL_ALGO", "ring");
  if (algorithm == "tree") set(environment, "NCCL_ALGO", "allreduce:tree");
  // NCCL's default and TUNING.
  constexpr const char* kLogged = "INIT,BOOTSTRAP,ENV,TUNING";
  set_default(environment, "NCCL_DEBUG_SUBSYS", kLogged);
  if (algorithm != "collnet") return environment;
  set(environment, "NCCL_ALGO", "allreduce:collnetchain,collnetdirect");
  set(environment, "NCCL_COLLNET_ENABLE", "1");
  // coll_net_fallback() reads these lines.
  set(environment, "NCCL_DEBUG", "INFO");
  set(environment, "NCCL_DEBUG_SUBSYS", kLogged);
  return environment;
}

}  // namespace plugfest::nccl
