// The process that runs on each host of a cluster: it starts ranks there and carries their channels.
#pragma once

#include <cstdint>
#include <string>

#include "harness/cluster/wire/token.h"

namespace plugfest::cluster {

/// Where the controller listens, and what an agent needs to join.
struct Meeting {
  /// IPv4 address in decimal digits, and port.
  std::string address;
  std::uint16_t port = 0;
  Token token{};

  /// "10.0.0.1 41234 6b1f…": one line without an end.
  std::string text() const;
  /// Parses what text() returns. Errors: std::runtime_error.
  static Meeting parse(const std::string& text);
};

/// Serves the controller until it says that the run is over, or the connection breaks. `name`: the host's, unique in
/// the run. `version`: of plugfest. Processes of ranks end with the calling thread. `stop_fd`: when it becomes
/// readable, the run is over, too; -1: never. `carries`: whether it may carry the messages of other agents, for which
/// it listens on the address from which it reaches the controller. Errors: std::runtime_error if there is no controller
/// at the address, or it does not know the token.
void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd = -1,
               bool carries = false);

}  // namespace plugfest::cluster
