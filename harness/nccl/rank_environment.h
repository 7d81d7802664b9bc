// The placement of the ranks of an NCCL job, and the environment variables that NCCL needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "harness/bed/test_bed.h"
#include "harness/control/launcher.h"

namespace plugfest::nccl {

/// NCCL's log goes to this descriptor of a rank, a file.
inline constexpr int kLogFd = 4;
/// Hangs up when a rank has failed.
inline constexpr int kPeersFd = 5;

struct Placement {
  std::size_t host = 0;   ///< index in Graph::hosts
  int device = 0;         ///< the rank's number inside its host
  int ranks_of_host = 1;  ///< number of ranks in that host
};

/// Spreads `ranks` over the hosts, neighbors together; 0: one in each host.
std::vector<Placement> place_ranks(const topology::Graph& graph, std::size_t ranks);

/// Sets a variable, replacing an earlier value.
void set(control::Environment& environment, const std::string& name, std::optional<std::string> value);

/// The path of the stand-in for the library of NVIDIA's driver, which the target nccl_ranks builds.
std::string stand_in_driver();

/// Lets a process find the stand-ins of CUDA and NVML before those that are installed.
void add_stand_ins(control::Environment& environment);

/// The first line of a process's output that begins with `start`, without that; "" if there is none.
std::string line_in(const std::string& output, const std::string& start);

/// What the stand-ins for CUDA lack, so that they ended a process with this output; "": nothing.
std::string missing_stand_in(const std::string& output);

/// The environment of a rank. `plugin`: its absolute path, "nccl:IB" or "nccl:Socket". Variables of NCCL that the user
/// has set stay, except those that the fabric and the plugin determine. `emulated`: the rank has stand-ins for CUDA.
control::Environment rank_environment(const bed::TestBed& bed, const std::string& plugin, const topology::Host& host,
                                      const Placement& placement, bool emulated = true);

/// Which ranks load from and store to each other's memory.
enum class DeviceApi {
  kNone,
  kHosts,   ///< the ranks of a host
  kDomain,  ///< all: the hosts are one NVLink domain
};

/// The variables with which NCCL offers its device API: symmetric memory, multicast and GIN. NCCL's own kernels get no
/// algorithm that the CPU's kernels lack, and keep shared memory inside a host unless all hosts are one domain.
control::Environment device_api_environment(DeviceApi api);

/// The variables with which NCCL takes `algorithm`: "ring", "tree" or "collnet", the latter two for allreduce only. "":
/// none. Rank 0 logs the algorithm of each operation, unless the user has set NCCL_DEBUG or NCCL_DEBUG_SUBSYS; with
/// "collnet" always.
control::Environment algorithm_environment(const std::string& algorithm);

}  // namespace plugfest::nccl
