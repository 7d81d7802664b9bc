// Floods of forged packets: they change no memory, each gets at most one answer, and connections lose no data.
#include <malloc.h>

#include <ostream>
#include <random>

#include "fabric/roce/tests/two_nics.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/wait.h"

namespace plugfest::roce {
namespace {

constexpr std::uint64_t kPackets = 20'000;
constexpr std::uint64_t kPacketsPerRound = 64;  // fewer than a socket's buffer holds
constexpr std::uint32_t kFirstPsn = 0x1000;

// PSNs outside the range of a test's own messages: a sender that knows the next PSN can do anything.
constexpr std::uint32_t kFarAhead = 1 << 20;

Attributes with_known_psn() {
  Attributes attributes;
  attributes.psn = kFirstPsn;
  return attributes;
}

// Lets `side` receive all packets sent to it.
void receive_all(Side& side, std::uint64_t packets) {
  const auto received = [&] {
    side.completions.poll(0, nullptr);
    const Counters counters = side.nic.counters();
    return counters.received_packets + counters.buffer_drops >= packets;
  };
  ASSERT_TRUE(wait_until(received, std::chrono::minutes(1)));
}

// Heap bytes in use, which would grow if the NIC kept state per packet.
std::size_t heap_bytes() { return mallinfo2().uordblks; }
constexpr std::size_t kHeapSlackBytes = 64 << 10;

// Sends one message in each direction and checks it.
void expect_to_work(TwoNics& nics, std::uint32_t seed) {
  constexpr std::uint32_t kBytes = 3000;
  constexpr std::size_t kTarget = 8192;
  fill(nics.a.buffer, seed);
  ASSERT_EQ(nics.b.post_receive(seed, kTarget, kBytes), 0);
  ASSERT_EQ(nics.run_at_a(IBV_WR_SEND, seed, 0, kBytes).status, IBV_WC_SUCCESS);
  const ibv_wc received = nics.at_b(1).front();
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  ASSERT_EQ(received.byte_len, kBytes);
  ASSERT_EQ(received.wr_id, seed);
  ASSERT_EQ(std::memcmp(nics.a.buffer.data(), nics.b.buffer.data() + kTarget, kBytes), 0);
  ASSERT_EQ(nics.run_at_b(IBV_WR_RDMA_WRITE, seed, kTarget, kBytes, to(nics.a, 2 * kTarget)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(std::memcmp(nics.b.buffer.data() + kTarget, nics.a.buffer.data() + 2 * kTarget, kBytes), 0);
}

struct Forgery {
  const char* name;
  bool from_peer;             // sent from the address of a's peer
  std::uint64_t max_answers;  // per packet
  std::uint64_t Counters::*counted_as;
  std::size_t payload_bytes;
  void (*change)(Headers& headers, std::uint32_t random);
  void (*damage)(std::vector<std::byte>& packet) = nullptr;
};

void PrintTo(const Forgery& forgery, std::ostream* out) { *out << forgery.name; }

class Floods : public testing::TestWithParam<Forgery> {
 protected:
  std::uint32_t random() { return static_cast<std::uint32_t>(engine_()); }

  void send_one() {
    const Forgery& forgery = GetParam();
    Headers headers;
    headers.operation = Operation::kSendOnly;
    headers.destination = nics_.a.queue_pair->number();
    headers.psn = Psn(kFirstPsn + kFarAhead + random() % kFarAhead);
    headers.ack_request = true;
    headers.address = nics_.a.at(0);
    headers.key = random();
    headers.length = 1 << 20;
    headers.syndrome = static_cast<std::uint8_t>(random());
    forgery.change(headers, random());
    forger_.send(nics_.a.address, headers, forgery.payload_bytes, forgery.damage);
    ++sent_;
  }

  std::minstd_rand engine_{3};
  TwoNics nics_{with_known_psn(), 1 << 15};
  Forger forger_{GetParam().from_peer ? nics_.b.address : loopback_address(7)};
  std::uint64_t sent_ = 0;
};

TEST_P(Floods, AreHarmless) {
  ASSERT_NO_FATAL_FAILURE(expect_to_work(nics_, 1));
  const Counters before = nics_.a.nic.counters();
  const std::size_t heap_before = heap_bytes();
  // Waits until each packet is counted.
  const auto receive_sent = [&] {
    for (;;) {
      const Counters counted = nics_.a.nic.counters() - before;
      if (counted.*GetParam().counted_as + counted.buffer_drops >= sent_) return counted;
      nics_.a.completions.poll(0, nullptr);
    }
  };
  while (sent_ < kPackets) {
    send_one();
    if (sent_ % kPacketsPerRound == 0) receive_sent();
  }
  const Counters counted = receive_sent();
  EXPECT_LE(heap_bytes(), heap_before + kHeapSlackBytes);
  // The peer may have repeated an earlier packet, which is answered.
  constexpr std::uint64_t kRepetitions = 16;
  EXPECT_LE(counted.sent_packets, GetParam().max_answers * kPackets + kRepetitions);

  for (std::uint32_t seed = 2; seed < 100; ++seed) {
    for (std::uint64_t i = 0; i < kPacketsPerRound; ++i) send_one();
    ASSERT_NO_FATAL_FAILURE(expect_to_work(nics_, seed));
  }
}

void as_it_is(Headers&, std::uint32_t) {}

INSTANTIATE_TEST_SUITE_P(
    Of, Floods,
    testing::Values(Forgery{"UnknownQueuePairs", true, 0, &Counters::unknown_queue_pairs, 64,
                            [](Headers& headers, std::uint32_t random) { headers.destination ^= 1 + random % 0xffff; }},
                    Forgery{"ProcessesThatAreNotThere", true, 0, &Counters::unknown_queue_pairs, 64,
                            [](Headers& headers, std::uint32_t) { headers.destination ^= 0x700000; }},
                    Forgery{"UnknownSenders", false, 0, &Counters::unexpected_packets, 64, as_it_is},
                    Forgery{"WrongChecksums", true, 0, &Counters::icrc_errors, 64, as_it_is,
                            [](std::vector<std::byte>& packet) { packet[20] ^= std::byte{1}; }},
                    Forgery{"WrongVersions", true, 0, &Counters::malformed_packets, 64,
                            [](Headers& headers, std::uint32_t) { headers.transport = static_cast<Transport>(0xc0); }},
                    Forgery{"WrongTransports", true, 0, &Counters::unexpected_packets, 64,
                            [](Headers& headers, std::uint32_t) { headers.transport = Transport::kDatagram; }},
                    Forgery{"SendsFarAhead", true, 1, &Counters::out_of_sequence, 64, as_it_is},
                    Forgery{"HalfMessages", true, 1, &Counters::out_of_sequence, 1024,
                            [](Headers& headers, std::uint32_t random) {
                              headers.operation = random % 2 == 0 ? Operation::kSendFirst : Operation::kSendMiddle;
                            }},
                    Forgery{"ReadRequestsFarAhead", true, 1, &Counters::out_of_sequence, 0,
                            [](Headers& headers, std::uint32_t) { headers.operation = Operation::kReadRequest; }},
                    Forgery{"ReadRequestsLongPast", true, 0, &Counters::duplicate_requests, 0,
                            [](Headers& headers, std::uint32_t random) {
                              headers.operation = Operation::kReadRequest;
                              headers.psn = Psn(kFirstPsn - 1 - random % kFarAhead);
                            }},
                    Forgery{"AtomicsLongPast", true, 0, &Counters::duplicate_requests, 0,
                            [](Headers& headers, std::uint32_t random) {
                              headers.operation = Operation::kFetchAdd;
                              headers.psn = Psn(kFirstPsn - 1 - random % kFarAhead);
                            }},
                    Forgery{"SendsLongPast", true, 1, &Counters::duplicate_requests, 64,
                            [](Headers& headers, std::uint32_t random) {
                              headers.psn = Psn(kFirstPsn - 1 - random % kFarAhead);
                            }},
                    Forgery{"Acknowledgements", true, 0, &Counters::received_packets, 0,
                            [](Headers& headers, std::uint32_t) { headers.operation = Operation::kAcknowledge; }},
                    Forgery{"Notifications", true, 0, &Counters::handled_notifications, 0,
                            [](Headers& headers, std::uint32_t) {
                              headers.transport = Transport::kNotification;
                              headers.operation = Operation::kCongestionNotification;
                            }},
                    Forgery{"ReadResponses", true, 0, &Counters::received_packets, 1024,
                            [](Headers& headers, std::uint32_t) { headers.operation = Operation::kReadResponseOnly; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

// A peer with a connection to `side` that sends forged packets.
class ForgedPeer {
 public:
  explicit ForgedPeer(Side& side) : side_(side), forger_(loopback_address(8)), queue_pair_(side.another_queue_pair()) {
    connect(*queue_pair_, loopback_address(8), 5, with_known_psn());
  }

  void send(Headers headers, std::size_t payload_bytes) {
    headers.destination = queue_pair_->number();
    headers.ack_request = true;
    forger_.send(side_.address, headers, payload_bytes);
  }

  QueuePair& queue_pair() { return *queue_pair_; }

 private:
  Side& side_;
  Forger forger_;
  std::unique_ptr<QueuePair> queue_pair_;
};

TEST(FloodsOfAPeer, ReadRequestsBeyondTheAgreedNumberAreDropped) {
  TwoNics nics(with_known_psn(), 1 << 18);
  ForgedPeer peer(nics.a);
  ASSERT_NO_FATAL_FAILURE(expect_to_work(nics, 1));
  constexpr std::uint32_t kRequests = 5000;
  constexpr std::uint32_t kPacketsEach = 4;
  const Counters before = nics.a.nic.counters();
  const std::size_t heap_before = heap_bytes();
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    Headers headers;
    headers.operation = Operation::kReadRequest;
    headers.psn = Psn(kFirstPsn + i * kPacketsEach);
    headers.address = nics.a.at(0);
    headers.key = nics.a.region->key();
    headers.length = kPacketsEach * 1024;
    peer.send(headers, 0);
    if (i % kPacketsPerRound == 0) receive_all(nics.a, before.received_packets + i + 1);
  }
  receive_all(nics.a, before.received_packets + kRequests);
  nics.a.completions.poll(0, nullptr);
  EXPECT_LE(heap_bytes(), heap_before + kHeapSlackBytes);
  EXPECT_LE(nics.a.nic.counters().sent_packets - before.sent_packets, kRequests * kPacketsEach);
  EXPECT_GT(nics.a.nic.counters().sent_packets, before.sent_packets);
  ASSERT_NO_FATAL_FAILURE(expect_to_work(nics, 2));
}

TEST(FloodsOfAPeer, UnfinishedMessagesUseOneReceive) {
  TwoNics nics(with_known_psn(), 1 << 18);
  ForgedPeer peer(nics.a);
  for (std::uint64_t id = 0; id < 2; ++id) {
    ibv_sge segment = {nics.a.at(100'000), 100'000, nics.a.region->key()};
    ibv_recv_wr request = {id, nullptr, &segment, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(peer.queue_pair().post_receive(&request, &bad), 0);
  }
  const Counters before = nics.a.nic.counters();
  const std::size_t heap_before = heap_bytes();
  Headers headers;
  headers.operation = Operation::kSendFirst;
  headers.psn = Psn(kFirstPsn);
  for (std::uint64_t i = 0; i < kPackets; ++i) {  // all but the first are duplicates
    peer.send(headers, 1024);
    if (i % kPacketsPerRound == 0) receive_all(nics.a, before.received_packets + i + 1);
  }
  receive_all(nics.a, before.received_packets + kPackets);
  EXPECT_LE(heap_bytes(), heap_before + kHeapSlackBytes);
  EXPECT_LE(nics.a.nic.counters().sent_packets - before.sent_packets, kPackets);
  ASSERT_NO_FATAL_FAILURE(expect_to_work(nics, 2));

  // A different packet ends this connection only.
  headers.psn = Psn(kFirstPsn + 1);
  peer.send(headers, 1024);
  ibv_wc completion = {};
  std::vector<ibv_wc_status> statuses;
  while (statuses.size() < 2)
    if (nics.a.completions.poll(1, &completion) == 1) statuses.push_back(completion.status);
  EXPECT_EQ(statuses, (std::vector<ibv_wc_status>{IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR}));
  ASSERT_NO_FATAL_FAILURE(expect_to_work(nics, 3));
}

}  // namespace
}  // namespace plugfest::roce
