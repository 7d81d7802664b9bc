// TCP connections by somebody who knows nothing of NCCL: port scanners, health checks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace plugfest::conformance {

/// Connects to every TCP socket that a process listens on, twice: once to send `garbage`, once to say nothing. The
/// connections stay open as long as this object.
class StrayConnections {
 public:
  /// Enters the network namespace of `process` on a thread of its own. Errors: std::runtime_error when that is barred;
  /// sockets that refuse the connection are passed over.
  StrayConnections(pid_t process, const std::vector<std::byte>& garbage);
  ~StrayConnections();
  StrayConnections(const StrayConnections&) = delete;
  StrayConnections& operator=(const StrayConnections&) = delete;

  std::size_t count() const { return sockets_.size(); }

 private:
  std::vector<int> sockets_;
};

}  // namespace plugfest::conformance
