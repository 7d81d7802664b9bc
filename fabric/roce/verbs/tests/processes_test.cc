// Several processes of a host share its NIC's UDP port: while they send, one is killed and another joins.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fabric/roce/verbs/testing/two_hosts.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

// Packets that have come to a host's UDP sockets.
std::uint64_t datagrams_in(TwoHosts& hosts, const std::string& host) {
  std::uint64_t count = 0;
  hosts.fabric().call(host, [&] {
    // "Udp: InDatagrams …" and below it "Udp: 12 …".
    std::ifstream file("/proc/thread-self/net/snmp");
    for (std::string row; std::getline(file, row);) {
      std::istringstream fields(row);
      std::string name;
      if (row.starts_with("Udp: ") && fields >> name) fields >> count;
    }
  });
  return count;
}

// Two processes, one on each host, that send to each other until they are done.
class Pair {
 public:
  Pair(TwoHosts& hosts, unsigned port, const std::vector<std::string>& options) {
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
      const netns::Finished finished = program->wait();
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
  constexpr std::uint64_t kSome = 2000;
  const std::uint64_t enough = datagrams_in(hosts, "a") + kSome;
  while (datagrams_in(hosts, "a") < enough) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Processes, OthersGoOnWhenOneIsKilledAndAnotherJoins) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  TwoHosts hosts;
  Pair victim(hosts, 18600, {"--run_infinitely", "-D", "1"});
  wait_for_traffic(hosts);
  Pair first(hosts, 18601, {"-q", "200", "-D", "2"});
  Pair second(hosts, 18602, {"-q", "200", "-D", "2"});
  wait_for_traffic(hosts);
  // The others' sockets now have new numbers in the kernel, and the newcomer gets the slot that is free.
  victim.kill_both();
  Pair newcomer(hosts, 18603, {"-q", "100", "-n", "100"});
  newcomer.expect_success("newcomer");
  first.expect_success("first");
  second.expect_success("second");
}

}  // namespace
}  // namespace plugfest::roce
