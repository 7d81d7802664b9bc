// Processes that share the UDP port of a host: one is killed and another starts while they send.
#include <signal.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

// Number of UDP packets that sockets of a host have received.
std::uint64_t datagrams_in(TwoHosts& hosts, const std::string& host) {
  std::uint64_t count = 0;
  hosts.fabric().call(host, [&] {
    // Format: a line "Udp: InDatagrams …", then a line "Udp: 12 …".
    std::ifstream file("/proc/thread-self/net/snmp");
    for (std::string row; std::getline(file, row);) {
      std::istringstream fields(row);
      std::string name;
      if (row.starts_with("Udp: ") && fields >> name) fields >> count;
    }
  });
  return count;
}

// A process on each host; both send to each other.
class ProcessPair {
 public:
  ProcessPair(TwoHosts& hosts, unsigned port, const std::vector<std::string>& options) {
    std::vector<std::string> argv = {"ib_write_bw", "-d", "roce_eth0",         "-F", "-b", "-s",
                                     "4096",        "-p", std::to_string(port)};
    argv.insert(argv.end(), options.begin(), options.end());
    server_ = std::make_unique<HostProcess>(hosts.fabric(), "a", argv, environment());
    server_->wait_until_listening(static_cast<std::uint16_t>(port));
    argv.push_back(hosts.address_of_a());
    client_ = std::make_unique<HostProcess>(hosts.fabric(), "b", argv, environment());
  }

  void kill_both() {
    kill(server_->pid(), SIGKILL);
    kill(client_->pid(), SIGKILL);
    server_->wait();
    client_->wait();
  }

  void expect_success(const char* which) {
    for (HostProcess* const program : {client_.get(), server_.get()}) {
      const Finished finished = program->wait();
      ASSERT_EQ(finished.exit_code, 0) << which << " on " << program->host() << ": " << finished.output;
    }
  }

 private:
  static std::vector<std::pair<std::string, std::optional<std::string>>> environment() {
    return {{"LD_LIBRARY_PATH", PLUGFEST_ROCE_FOLDER}};
  }

  std::unique_ptr<HostProcess> server_;
  std::unique_ptr<HostProcess> client_;
};

void wait_for_traffic(TwoHosts& hosts) {
  constexpr std::uint64_t kPackets = 2000;
  const std::uint64_t enough = datagrams_in(hosts, "a") + kPackets;
  EXPECT_TRUE(wait_until([&] { return datagrams_in(hosts, "a") >= enough; }));
}

TEST(Processes, ContinueWhenOneIsKilledAndAnotherStarts) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  TwoHosts hosts;
  ProcessPair victim(hosts, 18600, {"--run_infinitely", "-D", "1"});
  wait_for_traffic(hosts);
  ProcessPair first(hosts, 18601, {"-q", "200", "-D", "2"});
  ProcessPair second(hosts, 18602, {"-q", "200", "-D", "2"});
  wait_for_traffic(hosts);
  // After the kill, the kernel renumbers the sockets. The new process gets the free slot.
  victim.kill_both();
  ProcessPair late(hosts, 18603, {"-q", "100", "-n", "100"});
  late.expect_success("late");
  first.expect_success("first");
  second.expect_success("second");
}

}  // namespace
}  // namespace plugfest::roce::verbs
