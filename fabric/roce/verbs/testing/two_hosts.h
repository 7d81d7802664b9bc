// For tests: hosts of an emulated fabric in which programs run on the NIC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/process/host_process.h"

namespace plugfest::roce {

using netns::find_program;
using netns::HostProcess;

/// The triangle, of which tests use a and b: one link, roce_eth0 at both ends, path MTU 4096. Programs find the NIC's
/// library first and see /sys/class/infiniband filled.
///
/// Environment: PLUGFEST_TEST_NIC, the folder of another build of the library; PLUGFEST_TEST_PRELOAD, what programs
/// load before it: the runtime that a build with a sanitizer needs.
class TwoHosts {
 public:
  /// `topology`: another one, for tests with more hosts; address_of_a() is then of no use.
  explicit TwoHosts(const std::string& topology = "triangle");

  netns::Fabric& fabric() { return fabric_; }
  std::string address_of_a() const;

  HostProcess start(const std::string& host, const std::vector<std::string>& argv);

  /// As HostProcess::wait_until_listening, on TCP.
  void wait_until_listening(HostProcess& program, std::uint16_t port) { program.wait_until_listening(port); }

 private:
  netns::Fabric fabric_;
};

}  // namespace plugfest::roce

/// Skips a test, visibly, where a program of somebody else is not installed.
#define PLUGFEST_NEEDS_PROGRAM(name) \
  if (!::plugfest::roce::find_program(name)) GTEST_SKIP() << "needs " << (name) << ", which is not installed"
