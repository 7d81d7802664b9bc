// Processes that share the UDP port of a host: one is killed and another starts while they send.
#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

// ib_write_bw in both directions.
std::vector<std::string> command(std::uint16_t port, const std::vector<std::string>& options) {
  std::vector<std::string> argv = {"ib_write_bw", "-d", "roce_eth0",         "-F", "-b", "-s",
                                   "4096",        "-p", std::to_string(port)};
  argv.insert(argv.end(), options.begin(), options.end());
  return argv;
}

void wait_for_traffic(TwoHosts& hosts) {
  constexpr std::uint64_t kPackets = 2000;
  const std::uint64_t enough = hosts.counters("a").received_packets + kPackets;
  EXPECT_TRUE(wait_until([&] { return hosts.counters("a").received_packets >= enough; }));
}

TEST(Processes, ContinueWhenOneIsKilledAndAnotherStarts) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  TwoHosts hosts;
  ServerAndClient victim(hosts, command(18600, {"--run_infinitely", "-D", "1"}), 18600);
  wait_for_traffic(hosts);
  ServerAndClient first(hosts, command(18601, {"-q", "200", "-D", "2"}), 18601);
  ServerAndClient second(hosts, command(18602, {"-q", "200", "-D", "2"}), 18602);
  wait_for_traffic(hosts);
  // After the kill, the kernel renumbers the sockets. The new process gets the free slot.
  victim.kill();
  ServerAndClient late(hosts, command(18603, {"-q", "100", "-n", "100"}), 18603);
  for (ServerAndClient* const programs : {&late, &first, &second}) programs->expect_success();
}

}  // namespace
}  // namespace plugfest::roce::verbs
