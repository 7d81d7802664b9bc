// For tests: hosts of an emulated fabric in which programs run on the NIC.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"

namespace plugfest::roce {

/// A program that runs in a host, its output kept.
class Running {
 public:
  Running(netns::Fabric& fabric, std::string host, const std::vector<std::string>& argv);
  /// Kills it if it still runs.
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& host() const { return host_; }

  /// Waits for its end and returns how it ended and everything it printed.
  netns::Finished wait();
  bool has_ended();

 private:
  netns::Finished finished() const;

  std::string host_;
  int output_ = -1;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

/// The triangle, of which tests use a and b: one link, roce_eth0 at both ends, path MTU 4096. Programs find the NIC's
/// library first and see /sys/class/infiniband filled.
class TwoHosts {
 public:
  TwoHosts();

  netns::Fabric& fabric() { return fabric_; }
  std::string address_of_a() const;

  Running start(const std::string& host, const std::vector<std::string>& argv) { return {fabric_, host, argv}; }

  /// Returns when something in `host` listens on a TCP port. Errors: std::runtime_error with the program's output if it
  /// ends before that.
  void wait_until_listening(Running& program, std::uint16_t port);

 private:
  netns::Fabric fabric_;
};

/// Full path of a program, looked up in PATH unless it is one, or nothing if there is none.
std::optional<std::string> find_program(const std::string& name);

}  // namespace plugfest::roce

/// Skips a test, visibly, where a program of somebody else is not installed.
#define PLUGFEST_NEEDS_PROGRAM(name) \
  if (!::plugfest::roce::find_program(name)) GTEST_SKIP() << "needs " << (name) << ", which is not installed"
