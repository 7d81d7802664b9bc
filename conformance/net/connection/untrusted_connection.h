// TCP connections to a rank by programs other than its peer, such as port scanners and health checks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace plugfest::conformance {

/// Connects twice to every TCP socket that a process listens on: one connection sends `garbage`, the other sends
/// nothing. The connections stay open until destruction.
class UntrustedConnections {
 public:
  /// Enters the network namespace of `process`, if it is another one, on a temporary thread. Skips sockets that refuse
  /// the connection. Errors: std::runtime_error when the namespace cannot be entered.
  UntrustedConnections(pid_t process, const std::vector<std::byte>& garbage);
  ~UntrustedConnections();
  UntrustedConnections(const UntrustedConnections&) = delete;
  UntrustedConnections& operator=(const UntrustedConnections&) = delete;

  /// Number of established connections.
  std::size_t count() const { return sockets_.size(); }

 private:
  std::vector<int> sockets_;
};

}  // namespace plugfest::conformance
