// Unmodified programs of librdmacm on two hosts.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fabric/rdma_cm/message.h"
#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/scratch_folder.h"

namespace plugfest::rdma_cm {
namespace {

using netns::HostProcess;
using roce::verbs::ServerAndClient;
using roce::verbs::TwoHosts;

using Words = std::vector<std::string>;

Words with_manager(Words argv) {
  // Tests read the output while programs run, so they write each line at once.
  const Words prefix = {"env", roce::verbs::kConnectionManager, "stdbuf", "-oL", "timeout", "60"};
  argv.insert(argv.begin(), prefix.begin(), prefix.end());
  return argv;
}

// The TCP port on which programs of libfabric exchange parameters.
constexpr std::uint16_t kPingpongPort = 47592;

/// A server, and its client, to whose arguments the address of the server is appended.
struct Pair {
  std::string name;
  Words server, client;
  std::uint16_t port = kManagerPort;  ///< the TCP port on which the server waits for its client
};

void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }

std::vector<Pair> pairs() {
  return {
      {"Rping", {"rping", "-s", "-C", "20", "-V"}, {"rping", "-c", "-C", "20", "-V", "-a"}},
      {"RpingWithLongMessages",
       {"rping", "-s", "-C", "5", "-S", "65535"},
       {"rping", "-c", "-C", "5", "-S", "65535", "-a"}},
      {"Udaddy", {"udaddy"}, {"udaddy", "-s"}},
      {"UdaddyWithManyConnections", {"udaddy", "-c", "20"}, {"udaddy", "-c", "20", "-s"}},
      {"SynchronousCalls", {"rdma_server"}, {"rdma_client", "-s"}},
      {"Ucmatose", {"ucmatose"}, {"ucmatose", "-s"}},
      {"UcmatoseWithManyConnections", {"ucmatose", "-c", "50"}, {"ucmatose", "-c", "50", "-s"}},
      {"UcmatoseWithTwoThreadsAndMigration", {"ucmatose", "-m"}, {"ucmatose", "-m", "-s"}},
      {"SocketsOfRsocket",
       {"rstream", "-S", "4096", "-C", "50", "-T", "v"},
       {"rstream", "-S", "4096", "-C", "50", "-T", "v", "-s"}},
      {"NonblockingSockets",
       {"rstream", "-T", "n", "-S", "4096", "-C", "50"},
       {"rstream", "-T", "n", "-S", "4096", "-C", "50", "-s"}},
      {"WritesOfPerftest", {"ib_write_bw", "-R", "-F", "-n", "200"}, {"ib_write_bw", "-R", "-F", "-n", "200"}},
      {"SendsOfPerftest", {"ib_send_lat", "-R", "-F", "-n", "200"}, {"ib_send_lat", "-R", "-F", "-n", "200"}},
      {"DatagramsOfPerftest",
       {"ib_send_lat", "-R", "-F", "-c", "UD", "-n", "100"},
       {"ib_send_lat", "-R", "-F", "-c", "UD", "-n", "100"}},
      {"MessagesOfLibfabric",
       {"fi_pingpong", "-p", "verbs", "-e", "msg", "-I", "20", "-c"},
       {"fi_pingpong", "-p", "verbs", "-e", "msg", "-I", "20", "-c"},
       kPingpongPort},
      {"DatagramsOfLibfabric",
       {"fi_pingpong", "-p", "verbs", "-e", "dgram", "-I", "20", "-c"},
       {"fi_pingpong", "-p", "verbs", "-e", "dgram", "-I", "20", "-c"},
       kPingpongPort},
      {"ReliableDatagramsOfLibfabric",
       {"fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-I", "20", "-c"},
       {"fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-I", "20", "-c"},
       kPingpongPort},
  };
}

void wait_for_output(HostProcess& process, const std::string& text) {
  while (process.output().find(text) == std::string::npos && !process.has_exited()) std::this_thread::yield();
}

class RdmaCm : public testing::Test {
 protected:
  TwoHosts hosts_;
};

class Programs : public RdmaCm, public testing::WithParamInterface<Pair> {};

TEST_P(Programs, ConnectAndTransferData) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().server.front());
  ServerAndClient(hosts_, with_manager(GetParam().server), GetParam().port, with_manager(GetParam().client))
      .expect_success();
}

INSTANTIATE_TEST_SUITE_P(Pairs, Programs, testing::ValuesIn(pairs()), [](const auto& info) { return info.param.name; });

TEST_F(RdmaCm, MapsSocketsOfRiostream) {
  PLUGFEST_NEEDS_PROGRAM("riostream");
  const Words words = {"riostream", "-S", "65536", "-C", "10", "-T", "v"};
  Words client_words = with_manager(words);
  client_words.insert(client_words.end(), {"-s", hosts_.address_of_a()});
  // riostream's server listens before it sets the number of mappings (riostream.c: server_listen, server_connect). A
  // client that connects in between finds none, and both start again.
  for (bool too_early = true; too_early;) {
    HostProcess server = hosts_.start("a", with_manager(words));
    server.wait_until_listening(kManagerPort);
    const Finished client = hosts_.start("b", client_words).wait();
    too_early = client.output.find("riomap: Cannot allocate memory") != std::string::npos;
    if (too_early) {
      ::kill(server.pid(), SIGKILL);
      server.wait();
      continue;
    }
    EXPECT_EQ(client.exit_code, 0) << client.output;
    EXPECT_EQ(server.wait().exit_code, 0);
  }
}

TEST_F(RdmaCm, ConnectsOverIpv6) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  HostProcess server = hosts_.start("a", with_manager({"rping", "-s", "-a", "::", "-C", "3"}));
  server.wait_until_listening(kManagerPort);
  const Finished addresses = hosts_.start("a", {"ip", "-6", "-o", "address", "show", "dev", "eth0"}).wait();
  const std::size_t begin = addresses.output.find("fe80");
  ASSERT_NE(begin, std::string::npos) << addresses.output;
  const std::string address = addresses.output.substr(begin, addresses.output.find('/') - begin) + "%eth0";
  const Finished client = hosts_.start("b", with_manager({"rping", "-c", "-C", "3", "-a", address})).wait();
  EXPECT_EQ(client.exit_code, 0) << client.output;
  EXPECT_EQ(server.wait().exit_code, 0);
}

TEST_F(RdmaCm, CarriesTheFilesOfFio) {
  PLUGFEST_NEEDS_PROGRAM("fio");
  const auto fio = [](Words options) {
    const Words common = {"fio", "--thread", "--ioengine=rdma", "--port=9000", "--bs=64k", "--size=4m"};
    options.insert(options.begin(), common.begin(), common.end());
    return with_manager(options);
  };
  HostProcess server = hosts_.start("a", fio({"--name=receive", "--rw=read"}));
  server.wait_until_listening(kManagerPort);
  const Finished client = hosts_
                              .start("b", fio({"--name=send", "--rw=write", "--verb=write", "--iodepth=4",
                                               "--hostname=" + hosts_.address_of_a()}))
                              .wait();
  EXPECT_EQ(client.exit_code, 0) << client.output;
  EXPECT_NE(client.output.find("io=4096KiB"), std::string::npos) << client.output;
  EXPECT_EQ(server.wait().exit_code, 0);
}

// Runs a client on host b while host a runs a server that does not end. Returns the output of the client.
std::string output_of_client(TwoHosts& hosts, const Words& server_words, std::uint16_t port,
                             const Words& client_words) {
  HostProcess server = hosts.start("a", with_manager(server_words));
  server.wait_until_listening(port);
  const Finished client = hosts.start("b", with_manager(client_words)).wait();
  EXPECT_EQ(client.exit_code, 0) << client.output;
  return client.output;
}

TEST_F(RdmaCm, MeasuresTheCallsOfCmtime) {
  PLUGFEST_NEEDS_PROGRAM("cmtime");
  const std::string output = output_of_client(hosts_, {"cmtime", "-c", "50"}, kManagerPort,
                                              {"cmtime", "-c", "50", "-s", hosts_.address_of_a()});
  EXPECT_NE(output.find("disconnect"), std::string::npos) << output;
}

TEST_F(RdmaCm, CopiesAFileWithRcopy) {
  PLUGFEST_NEEDS_PROGRAM("rcopy");
  const ScratchFolder folder;
  const std::string from = folder / "from", to = folder / "to";
  EXPECT_EQ(hosts_.start("b", {"bash", "-c", "head -c 3000000 /dev/urandom >" + from}).wait().exit_code, 0);
  output_of_client(hosts_, {"rcopy"}, kManagerPort, {"rcopy", from, hosts_.address_of_a() + ":" + to});
  EXPECT_EQ(hosts_.start("a", {"cmp", from, to}).wait().exit_code, 0);
}

TEST_F(RdmaCm, ConnectsTheTestsOfQperf) {
  PLUGFEST_NEEDS_PROGRAM("qperf");
  const std::string output =
      output_of_client(hosts_, {"qperf"}, 19765,
                       {"qperf", hosts_.address_of_a(), "-cm", "1", "-t", "1", "rc_lat", "rc_bw", "rc_rdma_write_bw"});
  EXPECT_EQ(std::count(output.begin(), output.end(), '='), 3) << output;
}

// Two processes of one host and one of the other receive the same datagrams.
TEST_F(RdmaCm, CarriesMulticastToAllMembers) {
  PLUGFEST_NEEDS_PROGRAM("mckey");
  // The hosts have two links, and the kernel's multicast routes of the links have the same metric.
  for (const char* const host : {"a", "b"}) {
    const Finished route =
        hosts_.start(host, {"ip", "-6", "route", "add", "multicast", "ff15::5:7/128", "dev", "eth0", "table", "local"})
            .wait();
    ASSERT_EQ(route.exit_code, 0) << route.output;
  }
  for (const std::string group : {"239.5.6.7", "ff15::5:7"}) {
    const auto mckey = [&](const std::string& host, const Words& options) {
      Words words = {"mckey", "-m", group};
      words.insert(words.end(), options.begin(), options.end());
      return std::unique_ptr<HostProcess>(new HostProcess(hosts_.start(host, with_manager(words))));
    };
    std::vector<std::unique_ptr<HostProcess>> receivers;
    for (const std::string host : {"a", "a", "b"}) {
      receivers.push_back(mckey(host, {}));
      wait_for_output(*receivers.back(), "receiving data transfers");
    }
    const Finished sender = mckey("b", {"-s"})->wait();
    EXPECT_EQ(sender.exit_code, 0) << sender.output;
    for (const auto& receiver : receivers) {
      const Finished finished = receiver->wait();
      EXPECT_EQ(finished.exit_code, 0) << finished.output;
    }
  }
}

TEST_F(RdmaCm, RejectsAConnectionToAPortWithoutListener) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  const Words client = with_manager({"rping", "-c", "-d", "-C", "1", "-p", "9999", "-a", hosts_.address_of_a()});
  const std::string expected = "RDMA_CM_EVENT_REJECTED";
  const Finished without_manager = hosts_.start("b", client).wait();
  EXPECT_NE(without_manager.output.find(expected), std::string::npos) << without_manager.output;

  HostProcess server = hosts_.start("a", with_manager({"rping", "-s"}));
  server.wait_until_listening(kManagerPort);
  const Finished other_port = hosts_.start("b", client).wait();
  EXPECT_NE(other_port.output.find(expected), std::string::npos) << other_port.output;
  EXPECT_FALSE(server.has_exited());
}

TEST_F(RdmaCm, RefusesASecondListenerOfAPort) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  HostProcess first = hosts_.start("a", with_manager({"rping", "-s"}));
  first.wait_until_listening(kManagerPort);
  const Finished second = hosts_.start("a", with_manager({"rping", "-s"})).wait();
  EXPECT_NE(second.exit_code, 0);
  EXPECT_NE(second.output.find("rdma_bind_addr: Address already in use"), std::string::npos) << second.output;
}

TEST_F(RdmaCm, ReportsAnAddressWithoutRoute) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  const Finished client = hosts_.start("b", with_manager({"rping", "-c", "-d", "-a", "203.0.113.1"})).wait();
  EXPECT_NE(client.output.find("RDMA_CM_EVENT_ADDR_ERROR"), std::string::npos) << client.output;
}

// All processes of a host accept on the same TCP port, and pass connections to each other.
TEST_F(RdmaCm, ServesSeveralProcessesOfOneHost) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  constexpr int kProcesses = 4;
  std::vector<std::unique_ptr<HostProcess>> servers, clients;
  const auto start = [&](const std::string& host, const Words& argv) {
    return std::unique_ptr<HostProcess>(new HostProcess(hosts_.start(host, argv)));
  };
  const auto words = [](int process, Words argv) {
    argv.insert(argv.end(), {"-C", "5", "-p", std::to_string(8000 + process)});
    return with_manager(argv);
  };
  for (int i = 0; i < kProcesses; ++i) {
    servers.push_back(start("a", words(i, {"rping", "-s", "-d"})));
    wait_for_output(*servers.back(), "rdma_listen");
  }
  for (int i = 0; i < kProcesses; ++i)
    clients.push_back(start("b", words(i, {"rping", "-c", "-a", hosts_.address_of_a()})));
  for (const auto& client : clients) {
    const Finished finished = client->wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  }
  for (const auto& server : servers) {
    const Finished finished = server->wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  }
}

TEST_F(RdmaCm, SurvivesBytesThatAreNoMessage) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  HostProcess server = hosts_.start("a", with_manager({"rping", "-s", "-C", "3"}));
  server.wait_until_listening(kManagerPort);
  const std::string script =
      fmt::format("for size in 0 1 239 240 1000; do head -c $size /dev/urandom >/dev/tcp/{}/{} || true; done",
                  hosts_.address_of_a(), kManagerPort);
  EXPECT_EQ(hosts_.start("b", {"bash", "-c", script}).wait().exit_code, 0);
  const Finished client =
      hosts_.start("b", with_manager({"rping", "-c", "-C", "3", "-a", hosts_.address_of_a()})).wait();
  EXPECT_EQ(client.exit_code, 0) << client.output;
}

TEST_F(RdmaCm, ReportsThatThePeerDied) {
  PLUGFEST_NEEDS_PROGRAM("rping");
  HostProcess server = hosts_.start("a", with_manager({"rping", "-s", "-C", "1000000000"}));
  server.wait_until_listening(kManagerPort);
  HostProcess client =
      hosts_.start("b", with_manager({"rping", "-c", "-d", "-v", "-C", "1000000000", "-a", hosts_.address_of_a()}));
  wait_for_output(client, "ping data");
  ::kill(server.pid(), SIGTERM);  // timeout passes it on
  const Finished finished = client.wait();
  EXPECT_NE(finished.output.find("RDMA_CM_EVENT_DISCONNECTED"), std::string::npos) << finished.output.substr(0, 2000);
}

TEST_F(RdmaCm, SeparatesTheChannelsOfAChildProcess) {
  PLUGFEST_NEEDS_PROGRAM("python3");
  const std::string script = R"(
import ctypes, os, stat, struct
channel = os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
assert stat.S_ISCHR(os.fstat(channel).st_mode)
answer = (ctypes.c_uint32 * 1)()
address = ctypes.addressof(answer)
create = struct.pack("=IHHQQHB5x", 0, 24, 4, 1, address, 0x106, 2)
assert os.write(channel, create) == len(create)
identifier = answer[0]
child = os.fork()
if child == 0:
    try:
        os.write(channel, create)
    except OSError as error:
        os.close(channel)
        file = os.open("/dev/null", os.O_WRONLY)
        assert file == channel and os.write(file, b"text") == 4
        channel = os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
        os._exit(error.errno if os.write(channel, create) == len(create) else 1)
    os._exit(0)
print("child:", os.strerror(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
destroy = struct.pack("=IHHQII", 1, 16, 4, address, identifier, 0)
assert os.write(channel, destroy) == len(destroy)
print("parent: destroyed")
)";
  const Finished finished = hosts_.start("a", with_manager({"python3", "-c", script})).wait();
  EXPECT_EQ(finished.output, "child: Input/output error\nparent: destroyed\n");
}

// A file is still a file: the library stands in for functions of the C library.
TEST_F(RdmaCm, LeavesOtherFilesAlone) {
  const Finished shell = hosts_
                             .start("a", {"env", roce::verbs::kConnectionManager, "bash", "-c",
                                          "echo text | cat; exec 9</dev/null; echo $?"})
                             .wait();
  EXPECT_EQ(shell.output, "text\n0\n");
}

}  // namespace
}  // namespace plugfest::rdma_cm
