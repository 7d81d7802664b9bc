// A program that runs in a host, its output kept, for whoever starts several that talk to each other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"

namespace plugfest::netns {

/// Not thread-safe. Must not outlive the fabric.
class HostProcess {
 public:
  /// Starts it. Errors: as Fabric::spawn; std::system_error.
  HostProcess(Fabric& fabric, std::string host, const std::vector<std::string>& argv,
              std::vector<std::pair<std::string, std::optional<std::string>>> environment = {});
  /// Kills it if it still runs.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& host() const { return host_; }

  /// Waits for its end and returns how it ended and everything it printed.
  Finished wait();
  bool has_ended();

  /// What it has printed so far.
  std::string output() const;
  /// Returns when `text` is in what it has printed. Errors: std::runtime_error with this program's output if it ends
  /// without that.
  void wait_until_printed(std::string_view text);

  enum class Protocol { kTcp, kUdp };
  /// Returns when some program in this one's host listens on a TCP port, or has bound a UDP port. Errors:
  /// std::runtime_error with this program's output if it ends before that.
  void wait_until_listening(std::uint16_t port, Protocol protocol = Protocol::kTcp);

 private:
  Fabric& fabric_;
  std::string host_;
  int output_ = -1;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

/// Full path of a program, looked up in PATH unless it is one, or nothing if there is none.
std::optional<std::string> find_program(const std::string& name);

}  // namespace plugfest::netns
