// A fabric whose hosts run programs on the NIC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/host_process.h"

namespace plugfest::roce {

using netns::find_program;
using netns::HostProcess;

/// The TCP port on which ibverbs-utils and perftest exchange addresses.
inline constexpr std::uint16_t kExchangePort = 18515;

/// The topology "triangle", of which tests use the hosts a and b: one link between them, device roce_eth0 on both
/// sides, path MTU 4096. Programs load this project's libibverbs and see /sys/class/infiniband.
///
/// Environment: PLUGFEST_TEST_NIC: folder of another build of the library. PLUGFEST_TEST_PRELOAD: LD_PRELOAD of the
/// programs, such as the runtime of a sanitizer.
class TwoHosts {
 public:
  /// `topology`: for tests with other hosts; these cannot use address_of_a() and run_server_and_client().
  explicit TwoHosts(const std::string& topology = "triangle");

  netns::Fabric& fabric() { return fabric_; }
  std::string address_of_a() const;

  HostProcess start(const std::string& host, const std::vector<std::string>& argv);

  /// Runs `argv` on a as server until it listens on kExchangePort, then `argv` and the address of a on b as client.
  /// Expects that both exit with 0 (GoogleTest). Returns the output of the client.
  std::string run_server_and_client(std::vector<std::string> argv);

 private:
  netns::Fabric fabric_;
};

}  // namespace plugfest::roce

/// Skips a test if a program is not installed.
#define PLUGFEST_NEEDS_PROGRAM(name) \
  if (!::plugfest::roce::find_program(name)) GTEST_SKIP() << "needs " << (name) << ", which is not installed"
