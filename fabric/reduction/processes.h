// Starts the aggregation nodes and the manager in a running fabric.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/reduction/node_report.h"
#include "fabric/reduction/trees.h"

namespace plugfest::reduction {

/// The host or switch in which the manager runs: a switch whose address all hosts of the first tree reach; without
/// trees the first host.
struct ManagerPlace {
  std::string node;
  topology::Ipv4Address address;

  /// ADDRESS:PORT, for ranks.
  std::string text() const;
};
ManagerPlace manager_place(const Trees& trees);

/// The manager, and a node in each switch of a tree. Gives bridges of trees their addresses.
class Processes {
 public:
  /// All sockets are bound and connected when the constructor returns. `program`: the path of plugfest-aggregation.
  /// `specification`: the specification of the fabric's topology, valid in any current folder. The fabric must
  /// outlive the object. Errors: std::runtime_error.
  Processes(netns::Fabric& fabric, const std::string& program, const std::string& specification);
  /// Kills the processes.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// The manager's process, then the nodes' processes.
  const std::vector<pid_t>& ids() const { return processes_; }

 private:
  std::vector<pid_t> processes_;
};

/// Asks the aggregation nodes of a fabric, in the order of Graph::switches. A node that does not answer within two
/// seconds is missing. Errors: std::runtime_error if the manager does not answer.
std::vector<NodeReport> read_reports(netns::Fabric& fabric);

/// The path of plugfest-aggregation: in the folder of this executable, or in the folder bin beside that folder.
/// Errors: std::runtime_error.
std::string aggregation_program();

}  // namespace plugfest::reduction
