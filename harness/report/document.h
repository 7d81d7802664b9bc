// The content of results.json: runs, mutants and their environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/measurements.h"
#include "harness/report/results.h"

namespace plugfest::report {

struct Environment {
  std::string kernel;  ///< "Linux 6.1.0-18-amd64 x86_64"
  std::string cpu;     ///< model and number of processors
  std::string nic;     ///< "roce"
  std::string layout;  ///< placement of hosts, "all hosts in one namespace"; empty: one namespace per host
  std::string topology;
  std::string privileges;  ///< "root" or "user 1000"
};

/// The hosts, switches and links of a run, to draw them. Empty if unknown.
struct FabricRecord {
  struct Node {
    std::string name;
    /// 0: a host. Else a switch, 1: next to the hosts.
    int tier = 0;
  };
  struct Link {
    /// The interfaces at its ends, "a.eth0". NICs are on those of hosts.
    std::string from;
    std::string to;
    std::string subnet;                      ///< "192.168.1.0/24"
    std::uint64_t rate_bits_per_second = 0;  ///< 0: no limit
    double delay = 0;                        ///< seconds, one way
  };
  std::vector<Node> nodes;
  std::vector<Link> links;
};

/// How NCCL loaded the plugin: --loader nccl.
struct Loader {
  std::string nccl;     ///< NCCL's version, "2.28.9"; empty if its process ended before it reported one
  int api = 0;          ///< version of the interface that NCCL selected; 0: none
  std::string name;     ///< the plugin's name in that version
  int devices = 0;      ///< number of devices after NCCL has initialised the plugin
  std::string network;  ///< network of NCCL's communicator; "IB" or "Socket" if NCCL fell back
  /// The deviation from what was expected; empty if there is none.
  std::string deviation;
  /// NCCL's log, level INFO.
  std::string log;
};

/// "NCCL 2.28.9 selects Mesh v11, 2 devices", or the deviation.
std::string describe(const Loader& loader);

struct Document {
  std::string version;  ///< of plugfest
  std::string commit;   ///< of plugfest; empty if unknown
  Environment environment;
  FabricRecord fabric;
  std::optional<Loader> loader;  ///< with --loader nccl
  std::vector<Run> runs;
  std::vector<MutantResult> mutants;
  std::vector<PairResult> pairs;
  std::vector<Curve> curves;
  /// The signal that stopped the run before its end, for example SIGINT; 0: none. Rules that did not run are missing.
  int stop_signal = 0;
};

/// Returns kernel, processors and privileges of this machine and process.
Environment this_environment();

}  // namespace plugfest::report
