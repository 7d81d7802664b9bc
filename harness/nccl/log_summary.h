// Finds NCCL's choices in its log.
#pragma once

#include <string>
#include <vector>

namespace plugfest::nccl {

/// From the log of one rank at level INFO.
struct LogSummary {
  std::string version;  ///< "2.28.9+cuda13.0"
  std::string plugin;   ///< "mesh (v11)"; empty if no plugin was loaded
  /// Why the library of a plugin cannot be loaded: "…/libnccl-net-foo.so: undefined symbol: bar"; empty if it can.
  std::string load_error;
  std::string network;  ///< "mesh"
  /// "Sharp (v11)"; empty if NCCL loaded no CollNet of the plugin, or did not try to.
  std::string coll_net_plugin;
  /// Why NCCL may not take CollNet, as far as the log tells: "communicator has 3 nodes …", or the plugin's warning.
  std::string coll_net_off;
  std::string profiler;  ///< "Foo (v5)"; empty if NCCL loaded no profiler plugin
  /// Why NCCL continues without a profiler plugin that the user named, as far as the log tells.
  std::string profiler_off;
  int collective_channels = 0;
  int p2p_channels = 0;

  /// A connection on which this rank sends.
  struct Connection {
    /// `to` of a connection to the reducing switches.
    static constexpr int kSwitches = -1;
    int from = 0, to = 0;
    std::string transport;  ///< "NET/mesh/0", "SHM/direct/direct", "COLLNET/Sharp/0"
    int channels = 0;
  };
  std::vector<Connection> connections;

  /// Operations of the job, with NCCL_DEBUG_SUBSYS=TUNING, in the log of rank 0 only.
  struct Algorithm {
    std::string operation;  ///< "AllReduce"
    std::string algorithm;  ///< "COLLNET_CHAIN SIMPLE"
    int operations = 0;
  };
  std::vector<Algorithm> algorithms;

  /// Warnings and errors, without the lines' prefix.
  std::vector<std::string> warnings;
};

LogSummary summarize(const std::string& log);

/// Whether NCCL uses the network of the plugin that it has loaded. Plugins such as nccl-rdma-sharp-plugins change
/// their name in init, so that it may differ from the loaded one.
bool uses_plugin(const LogSummary& summary);

/// Why a job does not use its plugin: "NCCL takes the network IB instead of the plugin: rank 0: …"; empty if it does,
/// or if no rank has created a communicator. `logs`: the logs of all ranks.
std::string net_fallback(const std::vector<std::string>& logs);

/// Why a job that may use CollNet continues without it: "NCCL continues without CollNet: rank 0: …"; empty if it can
/// take CollNet. `logs`: the logs of all ranks.
std::string coll_net_fallback(const std::vector<std::string>& logs);

/// Why a job continues without the profiler plugin that the user named: "NCCL continues without the profiler: rank 0:
/// …"; empty if all ranks have loaded it. `logs`: the logs of all ranks.
std::string profiler_fallback(const std::vector<std::string>& logs);

/// "net plugin mesh (v11), network mesh, 2 collective and 2 p2p channels"
std::string choices_text(const LogSummary& summary);
/// "0 -> 1 NET/mesh/0 x2, 0 -> 2 NET/mesh/1 x2"; channels with the same ends and transport are one.
std::string connections_text(const LogSummary& summary);
/// "AllReduce COLLNET_CHAIN SIMPLE x43, AllGather RING LL x3"; empty if the log does not tell.
std::string algorithms_text(const LogSummary& summary);

}  // namespace plugfest::nccl
