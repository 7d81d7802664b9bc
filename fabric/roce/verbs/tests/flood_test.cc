// A third host floods one endpoint of a connection with its own and with the peer's address.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "fabric/roce/counters/names.h"
#include "fabric/roce/testing/forger.h"
#include "fabric/roce/verbs/testing/background_writes.h"
#include "fabric/roce/verbs/testing/verbs_endpoint.h"

namespace plugfest::roce {
namespace {

constexpr int kPackets = 40'000;
constexpr std::uint32_t kFarAhead = 1 << 21;  // beyond all PSNs of the connection
constexpr std::size_t kHeapSlackBytes = 1 << 20;

// Number of UDP packets that the current host has received, with or without a socket.
std::uint64_t datagrams_here() {
  std::ifstream file("/proc/thread-self/net/snmp");
  std::uint64_t received = 0, without_socket = 0;
  for (std::string row; std::getline(file, row);) {
    std::istringstream fields(row);
    std::string name;
    if (row.starts_with("Udp: ") && fields >> name) fields >> received >> without_socket;
  }
  return received + without_socket;
}

class Flood {
 public:
  Flood(std::string target, const std::string& peer, const std::string& own, std::uint32_t queue_pair)
      : target_(std::move(target)), as_peer_(peer, true), as_itself_(own), queue_pair_(queue_pair) {}

  void send_one() {
    Headers headers;
    headers.destination = random() % 4 == 0 ? queue_pair_ ^ (1 + random() % 0xffff) : queue_pair_;
    headers.psn = Psn(kFarAhead + random() % kFarAhead);
    headers.ack_request = true;
    headers.key = random();
    headers.address = std::uint64_t{random()} << 16;
    headers.length = 1 << 20;
    constexpr Operation kOperations[] = {Operation::kSendFirst,   Operation::kSendMiddle, Operation::kSendOnly,
                                         Operation::kWriteFirst,  Operation::kWriteOnly,  Operation::kReadRequest,
                                         Operation::kAcknowledge, Operation::kFetchAdd};
    headers.operation = kOperations[random() % std::size(kOperations)];
    const OperationTraits& traits = traits_of(headers.operation);
    const bool damaged = random() % 8 == 0;
    (random() % 2 == 0 ? as_peer_ : as_itself_)
        .send(target_, headers, traits.send || traits.write ? 1024 : 0, [&](std::vector<std::byte>& packet) {
          if (damaged) packet[packet.size() / 2] ^= std::byte{0x10};
        });
  }

 private:
  std::uint32_t random() { return static_cast<std::uint32_t>(engine_()); }

  const std::string target_;
  Forger as_peer_;
  Forger as_itself_;
  const std::uint32_t queue_pair_;
  std::minstd_rand engine_{5};
};

TEST(Flood, GetsNoResponseAndDoesNotAffectTheConnection) {
  TwoHosts hosts("star:3");
  const auto address_of_host = [&](const char* host) {
    return hosts.fabric().graph().host(host).interfaces.at(0).address.text();
  };
  VerbsEndpoint a(hosts, "h1");
  VerbsEndpoint b(hosts, "h2");
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  const BackgroundWrites writes(b, a);
  writes.wait_for_progress();
  const std::size_t heap_before = mallinfo2().uordblks;
  std::uint64_t answers = 0;
  hosts.fabric().call("h3", [&] {
    Flood flood(address_of_host("h1"), address_of_host("h2"), address_of_host("h3"), a.qp->qp_num);
    const std::uint64_t before = datagrams_here();
    for (int i = 0; i < kPackets; ++i) {
      flood.send_one();
      if (i % 4096 == 0) writes.wait_for_progress();
    }
    writes.wait_for_progress();
    answers = datagrams_here() - before;
  });
  Counters counted;  // proves that the packets arrived
  hosts.fabric().call("h1", [&] { counted = read_counters().at(0).counters; });
  EXPECT_GT(counted.unexpected_packets, 0u);
  EXPECT_GT(counted.out_of_sequence, 0u);
  EXPECT_GT(counted.unknown_queue_pairs, 0u);
  EXPECT_GT(counted.icrc_errors, 0u);
  EXPECT_EQ(answers, 0u);
  EXPECT_LE(mallinfo2().uordblks, heap_before + kHeapSlackBytes);
}

}  // namespace
}  // namespace plugfest::roce
