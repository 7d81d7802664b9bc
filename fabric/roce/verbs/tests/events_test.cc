#include <malloc.h>
#include <poll.h>
#include <sys/syscall.h>

#include <fstream>
#include <random>
#include <sstream>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/tests/two_nics.h"
#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

// Whether a thread of this process is blocked in read().
bool is_reading(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && number == SYS_read;
}

using AsyncEvents = OpenDevice;

TEST_F(AsyncEvents, ClosingTheDeviceWakesTheReader) {
  std::atomic<pid_t> id = 0;
  int result = 0;
  std::thread reader([&] {
    id = gettid();
    ibv_async_event event = {};
    result = ibv_get_async_event(context, &event);
  });
  EXPECT_TRUE(wait_until([&] { return id != 0 && is_reading(id); }));
  EXPECT_EQ(ibv_close_device(std::exchange(context, nullptr)), 0);
  reader.join();
  EXPECT_EQ(result, -1);
}

TEST_F(AsyncEvents, ReportPortDownAndUp) {
  hosts.fabric().set_interface_up("b", "eth0", false);
  const ibv_async_event down = next_event();
  EXPECT_EQ(down.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(down.element.port_num, 1);
  hosts.fabric().set_interface_up("b", "eth0", true);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_PORT_ACTIVE);
}

TEST_F(AsyncEvents, ReportANewAddressThatIsUsableImmediately) {
  ASSERT_EQ(hosts.start("a", {"ip", "address", "add", "192.168.100.77/24", "dev", "eth0"}).wait().exit_code, 0);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_GID_CHANGE);
  hosts.fabric().call("a", [&] {
    // The address takes the first empty entry, behind the link-local address if the kernel has IPv6.
    ibv_gid gid = {};
    int index = 0;
    while (index < 15 && gid.raw[15] != 77) EXPECT_EQ(ibv_query_gid(context, 1, ++index, &gid), 0);
    EXPECT_LE(index, 2);
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_ah_attr attributes = {};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = gid;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(index);
    ibv_ah* ah = ibv_create_ah(pd, &attributes);
    EXPECT_NE(ah, nullptr) << std::strerror(errno);
    if (ah != nullptr) EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  });
}

TEST_F(AsyncEvents, SupportNonBlockingDescriptors) {
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event = {};
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(CompletionChannels, AreReadableWhenTheyHaveAnEvent) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  b.post_receive(3);
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  ASSERT_EQ(a.post(request, a.segment(0, 8)), 0);
  pollfd readable = {b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, -1), 1);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel, &queue, &context), 0);
  EXPECT_EQ(queue, b.cq);
  ibv_ack_cq_events(queue, 1);
  EXPECT_EQ(b.wait_for_completion().wr_id, 3u);
}

TEST(CompletionChannels, DropEventsOfADestroyedQueue) {
  TwoHosts hosts;
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  {
    VerbsEndpoint a(hosts, "a");
    ASSERT_NO_FATAL_FAILURE(connect(a, b));
    ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    b.post_receive(3);
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    ASSERT_EQ(a.post(request), 0);
    pollfd readable = {b.channel->fd, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, -1), 1);
  }
  // The program never reads the event: destroying b's queue must discard it without waiting.
}

TEST_F(AsyncEvents, OfTheParentAreNotAffectedByClosingInTheChild) {
  EXPECT_EQ(ibv_fork_init(), 0);
  const pid_t child = fork();
  if (child == 0) _exit(ibv_close_device(context));
  EXPECT_EQ(await_exit(child), 0);
  hosts.fabric().set_interface_up("b", "eth0", false);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_PORT_ERR);
  ibv_async_event event = {};
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

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
}  // namespace plugfest::roce::verbs
