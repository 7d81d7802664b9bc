// Finds NCCL's choices in its log.
#pragma once

#include <string>
#include <vector>

namespace plugfest::nccl {

/// From the log of one rank at level INFO.
struct LogSummary {
  std::string version;  ///< "2.28.9+cuda13.0"
  std::string plugin;   ///< "mesh (v11)"; empty if no plugin was loaded
  std::string network;  ///< "mesh"
  int collective_channels = 0;
  int p2p_channels = 0;

  /// A connection on which this rank sends.
  struct Connection {
    int from = 0, to = 0;
    std::string transport;  ///< "NET/mesh/0", "SHM/direct/direct"
    int channels = 0;
  };
  std::vector<Connection> connections;

  /// Warnings and errors, without the lines' prefix.
  std::vector<std::string> warnings;
};

LogSummary summarize(const std::string& log);

/// "net plugin mesh (v11), network mesh, 2 collective and 2 p2p channels"
std::string choices_text(const LogSummary& summary);
/// "0 -> 1 NET/mesh/0 x2, 0 -> 2 NET/mesh/1 x2"; channels with the same ends and transport are one.
std::string connections_text(const LogSummary& summary);

}  // namespace plugfest::nccl
