// Programs that run in a host.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/system/file.h"

namespace plugfest::netns {

/// A process in a host whose standard output and standard error are kept. The fabric must outlive it.
/// Thread safety: none.
class HostProcess {
 public:
  /// Starts the program. Errors: as Fabric::spawn(); std::system_error.
  HostProcess(Fabric& fabric, std::string host, const std::vector<std::string>& argv,
              std::vector<std::pair<std::string, std::optional<std::string>>> environment = {});
  /// Kills the process if it still runs.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  const std::string& host() const { return host_; }
  pid_t pid() const { return pid_; }

  /// Waits until the process has exited. Returns its exit code and its whole output.
  Finished wait();
  bool has_exited();

  /// The output so far.
  std::string output() const;

  enum class Protocol { kTcp, kUdp };
  /// Waits until any program in this host listens on a TCP port, or has bound a UDP port. Errors: std::runtime_error
  /// with the output of this process if it exits before, or after two minutes.
  void wait_until_listening(std::uint16_t port, Protocol protocol = Protocol::kTcp);

 private:
  Fabric& fabric_;
  std::string host_;
  Descriptor output_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

/// Whether a socket of a program or of the kernel listens on a TCP port, or has bound a UDP port, in the network
/// namespace of the calling thread.
bool is_listening(std::uint16_t port, HostProcess::Protocol protocol);

/// The full path of a program: `name` itself if it is a path, else the first match in PATH; nullopt if none exists.
std::optional<std::string> find_program(const std::string& name);

}  // namespace plugfest::netns
