// NICs of processes that exit, are killed, fork, cancel threads, or share a port with others.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/tests/two_nics.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

class EndingProcess : public testing::Test {
 protected:
  EndingProcess() { make_counter_files(device_folder_); }

  std::string counter(const char* file) const {
    std::string line;
    std::ifstream stream(device_folder_ / "ports/1" / file);
    std::getline(stream, line);
    return line;
  }

  ScratchFolder device_folder_;
};

Attributes unreliable() {
  Attributes attributes;
  attributes.type = IBV_QPT_UC;
  return attributes;
}

// Sends one message to the queue pair whose number it reads, and calls exit().
[[noreturn]] void send_and_exit(int number_of_peer, const std::string& from, const std::string& to,
                                const std::filesystem::path& device_folder) {
  std::uint32_t number = 0;
  if (read(number_of_peer, &number, sizeof(number)) != sizeof(number)) std::_Exit(1);
  auto* side = new Side(from, 4096, parse_faults("delay=20ms"), IBV_QPT_UC, device_folder);
  connect(*side->queue_pair, to, number, unreliable());
  std::exit(side->post_send(IBV_WR_SEND, 1, 0, 100));
}

TEST_F(EndingProcess, SendsDelayedPacketsAndPublishesCounters) {
  const std::string here = loopback_address(1), there = loopback_address(2);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  close(ends[child == 0 ? 1 : 0]);  // each process keeps one end only
  if (child == 0) send_and_exit(ends[0], there, here, device_folder_);
  Side receiver(here, 4096, {}, IBV_QPT_UC);
  const std::uint32_t number = receiver.queue_pair->number();
  connect(*receiver.queue_pair, there, number, unreliable());  // the sender's number does not matter to UC
  ASSERT_EQ(receiver.post_receive(7, 0, 4096), 0);
  ASSERT_EQ(write(ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  ASSERT_EQ(await_exit(child), 0);
  const ibv_wc completion = receiver.next_completion();
  EXPECT_EQ(completion.wr_id, 7u);
  EXPECT_EQ(completion.byte_len, 100u);
  EXPECT_EQ(counter("counters/port_xmit_packets"), "1");
  EXPECT_EQ(counter("hw_counters/delayed_packets"), "1");
  close(ends[1]);
}

// A process that receives one message, and then calls `end` with its status.
class ReceivingProcess {
 public:
  explicit ReceivingProcess(void (*end)(ibv_wc_status)) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_), 0);
    id_ = fork();
    close(ends_[id_ == 0 ? 1 : 0]);  // each process keeps one end only
    if (id_ == 0) receive(end);
  }
  ~ReceivingProcess() { close(ends_[1]); }
  ReceivingProcess(const ReceivingProcess&) = delete;
  ReceivingProcess& operator=(const ReceivingProcess&) = delete;

  pid_t id() const { return id_; }
  const std::string& sender_address() const { return sender_address_; }

  void connect_to(const Side& sender, const Attributes& attributes) {
    const std::uint32_t number = exchange_numbers(ends_[1], sender);
    ASSERT_NE(number, 0u);
    connect(*sender.queue_pair, address_, number, attributes);
  }

 private:
  // Returns the number of the other process's queue pair; 0 after an error.
  static std::uint32_t exchange_numbers(int socket, const Side& side) {
    const std::uint32_t own = side.queue_pair->number();
    std::uint32_t number = 0;
    const bool exchanged =
        write(socket, &own, sizeof(own)) == sizeof(own) && read(socket, &number, sizeof(number)) == sizeof(number);
    return exchanged ? number : 0;
  }

  [[noreturn]] void receive(void (*end)(ibv_wc_status)) const {
    Side side(address_, 4096);
    const std::uint32_t number = exchange_numbers(ends_[0], side);
    if (number == 0) std::_Exit(1);
    connect(*side.queue_pair, sender_address_, number, {});
    if (side.post_receive(1, 0, 100) != 0) std::_Exit(1);
    end(side.next_completion().status);
    std::_Exit(1);
  }

  const std::string sender_address_ = loopback_address(1), address_ = loopback_address(2);
  int ends_[2] = {-1, -1};
  pid_t id_ = -1;
};

TEST(ExitingProcess, AcknowledgesReceivedMessages) {
  ReceivingProcess receiver([](ibv_wc_status status) { std::exit(status); });
  Side sender(receiver.sender_address(), 4096);
  receiver.connect_to(sender, {});
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(await_exit(receiver.id()), 0);
}

// Its host reports that the port is closed.
TEST(KilledProcess, IsNoticedByItsPeerBeforeATimeout) {
  ReceivingProcess receiver([](ibv_wc_status) {
    while (true) pause();
  });
  Side sender(receiver.sender_address(), 4096);
  constexpr std::uint8_t kHours = 31;
  receiver.connect_to(sender, {.timeout = kHours});
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_SUCCESS);
  kill(receiver.id(), SIGKILL);
  EXPECT_EQ(waitpid(receiver.id(), nullptr, 0), receiver.id());
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 2, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(sender.nic.counters().timeouts, 0u);
}

// The peer may open its port later.
TEST(ClosedPort, CountsOnlyAfterAnAnswer) {
  Side sender(loopback_address(1), 4096);
  constexpr std::uint8_t kMilliseconds = 13;  // 34, of which four pass before a retry
  connect(*sender.queue_pair, loopback_address(2), 1 << 16, {.timeout = kMilliseconds, .retry_count = 1});
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(sender.nic.counters().timeouts, 2u);
}

TEST(CanceledThread, LeavesTheNicUsable) {
#ifdef PLUGFEST_SANITIZED
  GTEST_SKIP() << "with a sanitizer the NIC calls libc, whose functions are cancellation points";
#endif
  TwoNics nics;
  std::atomic<int> polls{0};
  std::thread poller([&] {
    for (ibv_wc completion = {};; pthread_testcancel()) {
      nics.a.completions.poll(1, &completion);
      ++polls;
    }
  });
  while (polls < 1000) sched_yield();
  pthread_cancel(poller.native_handle());
  poller.join();
  ASSERT_EQ(nics.b.post_receive(1, 0, 100), 0);
  ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(nics.at_b(1).front().status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.at_a(1).front().status, IBV_WC_SUCCESS);
}

constexpr std::uint32_t kBytes = 100000;

// Sends WRITEs in both directions on a thread and checks them, until it is stopped.
class Traffic {
 public:
  explicit Traffic(TwoNics& nics) : thread_([this, &nics] { run(nics); }) {}
  ~Traffic() { stop(); }

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  unsigned rounds() const { return rounds_; }

 private:
  void run(TwoNics& nics) {
    while (!stop_ && !testing::Test::HasFailure()) {
      fill(nics.a.buffer, rounds_);
      ASSERT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, kBytes, to(nics.b)).status, IBV_WC_SUCCESS);
      ASSERT_TRUE(arrived(nics.a, nics.b, 0, 0, kBytes));
      ++rounds_;
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<unsigned> rounds_{0};
  std::thread thread_;
};

// Forks a child that exits with the result of `body`.
template <typename Body>
pid_t fork_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

template <typename Body>
void fork_during_traffic(TwoNics& nics, Body body) {
  Traffic traffic(nics);
  for (int i = 0; i < 20; ++i) {
    const unsigned before = traffic.rounds();
    const pid_t child = fork_child(body);
    ASSERT_GT(child, 0);
    EXPECT_EQ(await_exit(child), 0);
    while (traffic.rounds() == before && !testing::Test::HasFailure()) std::this_thread::yield();
  }
}

TEST(Fork, ParentContinuesWhenChildrenExit) {
  TwoNics nics;
  fork_during_traffic(nics, [] { return 0; });
}

TEST(Fork, ParentContinuesWhenChildrenCallExec) {
  TwoNics nics;
  fork_during_traffic(nics, [] {
    execl("/bin/true", "true", nullptr);
    return 1;
  });
}

TEST(Fork, ParentContinuesWhenChildrenUseItsQueues) {
  TwoNics nics;
  fork_during_traffic(nics, [&nics] {
    ibv_wc completion;
    if (nics.a.completions.poll(1, &completion) != -1) return 1;
    if (nics.a.post_receive(1, 0, 100) == 0) return 2;
    if (nics.a.completions.request_notify(false) != EIO || nics.a.completions.resize(1) != EIO) return 4;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    return nics.a.queue_pair->modify(attributes, IBV_QP_STATE) == 0 ? 3 : 0;
  });
}

// While a forked child runs, the parent still receives its own packets.
TEST(Fork, RunningChildReceivesNoPacketsOfItsParent) {
  TwoNics nics;
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork_child([&to_child] {
    close(to_child[1]);
    char byte;
    return read(to_child[0], &byte, 1) == 0 ? 0 : 1;  // until the parent closes its end
  });
  close(to_child[0]);
  {
    Traffic traffic(nics);
    while (traffic.rounds() < 20 && !HasFailure()) std::this_thread::yield();
  }
  close(to_child[1]);
  EXPECT_EQ(await_exit(child), 0);
}

// Several processes share UDP port 4791 of one address, even after one of them ends. Each NIC object takes a slot and a
// socket of its own, so three NICs in one process behave like three processes.

void expect_write_arrives(TwoNics& nics, std::uint32_t seed) {
  fill(nics.a.buffer, seed);
  ASSERT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 1, 0, kBytes, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived(nics.a, nics.b, 0, 0, kBytes));
}

std::vector<std::unique_ptr<TwoNics>> make_pairs(int count) {
  std::vector<std::unique_ptr<TwoNics>> pairs;
  for (int i = 0; i < count; ++i) pairs.push_back(std::make_unique<TwoNics>());
  return pairs;
}

TEST(Sharing, EachOfThreeNicsOnOneAddressReceivesItsOwnPackets) {
  auto pairs = make_pairs(3);
  for (std::uint32_t i = 0; i < 3; ++i) expect_write_arrives(*pairs[i], i);
  for (const auto& pair : pairs) EXPECT_EQ(pair->b.nic.counters().forwarded_packets, 0u);
}

TEST(Sharing, OtherNicsContinueWhenOneEnds) {
  auto pairs = make_pairs(3);
  // The third socket now has the number of the first one. The kernel gives packets for the third number to any socket,
  // whose process forwards them.
  pairs.erase(pairs.begin());
  for (std::uint32_t i = 0; i < 2; ++i) expect_write_arrives(*pairs[i], 10 + i);
}

// Forwarding is temporary: a process that receives packets of others updates the socket map.
TEST(Sharing, PacketsReachTheRightProcessAgainAfterOneEnds) {
  auto pairs = make_pairs(5);
  pairs.erase(pairs.begin() + 3);
  pairs.erase(pairs.begin());
  pairs.push_back(std::make_unique<TwoNics>());  // takes the slot of the first one, and another socket number
  auto forwarded = [&] {
    std::uint64_t count = 0;
    for (const auto& pair : pairs)
      count += pair->a.nic.counters().forwarded_packets + pair->b.nic.counters().forwarded_packets;
    return count;
  };
  std::uint64_t before = forwarded();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0;; ++i) {
    for (const auto& pair : pairs) expect_write_arrives(*pair, i);
    const std::uint64_t after = forwarded();
    if (i > 0 && after == before) break;
    before = after;
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "still forwarded";
  }
  EXPECT_GT(before, 0u) << "no packet was forwarded: this kernel does not renumber sockets";
}

// The kernel merges packets of one sender for different processes: a batch may contain packets of two messages.
TEST(Sharing, PacketsOfAnotherProcessInABatchAreForwarded) {
  TwoNics first, second;
  constexpr std::uint32_t kPacketBytes = 1024;
  constexpr std::uint32_t kBytes = 4 * kPacketBytes;
  std::vector<std::uint8_t> payload(kBytes);
  fill(payload, 5);
  const NicContext sender = first.b.nic.context();
  {
    const std::lock_guard lock(sender.lock);
    const Destination destination = {address_of(first.b.address), address_of(first.a.address), 0, 64};
    const Path path = path_to(destination, sender.ports, first.b.queue_pair->number());
    const auto add = [&](const Side& receiver, Operation operation, std::uint32_t packet) {
      Headers headers;
      headers.operation = operation;
      headers.destination = receiver.queue_pair->number();
      headers.psn = Psn(Attributes{}.psn) + packet;
      headers.address = receiver.at(0);
      headers.key = receiver.region->key();
      headers.length = kBytes;
      const iovec part = {payload.data() + packet * kPacketBytes, kPacketBytes};
      ASSERT_TRUE(sender.batch.add(path, headers, {&part, 1}, kPacketBytes));
    };
    for (TwoNics* const pair : {&first, &second}) add(pair->a, Operation::kWriteFirst, 0);
    ASSERT_TRUE(sender.batch.flush());
    for (TwoNics* const pair : {&first, &second})
      for (const std::uint32_t packet : {1u, 2u}) add(pair->a, Operation::kWriteMiddle, packet);
    ASSERT_TRUE(sender.batch.flush());
    for (TwoNics* const pair : {&first, &second}) add(pair->a, Operation::kWriteLast, 3);
    ASSERT_TRUE(sender.batch.flush());
  }
  const auto received = [](TwoNics& pair) { return pair.a.nic.counters().received_packets; };
  while (received(first) + received(second) < 8)
    for (TwoNics* const pair : {&first, &second}) pair->a.completions.poll(0, nullptr);
  EXPECT_EQ(first.a.nic.counters().unknown_queue_pairs, 0u);
  for (TwoNics* const pair : {&first, &second})
    EXPECT_EQ(std::memcmp(payload.data(), pair->a.buffer.data(), kBytes), 0);
}

TEST(Sharing, FreeSlotIsReused) {
  auto first = std::make_unique<TwoNics>();
  auto second = std::make_unique<TwoNics>();
  const std::uint32_t slot = first->a.queue_pair->number() >> 16;
  EXPECT_NE(slot, second->a.queue_pair->number() >> 16);
  first.reset();
  TwoNics third;
  EXPECT_EQ(third.a.queue_pair->number() >> 16, slot);
  expect_write_arrives(third, 1);
  expect_write_arrives(*second, 2);
}

// An address that the interface has lost leaves an empty entry.
TEST(Sharing, TheFirstAddressInUseIsOpened) {
  const Address address = address_of(loopback_address(1));
  Nic nic({.addresses = {Address(), address}});
  const NicContext context = nic.context();
  const std::lock_guard lock(context.lock);
  context.operations.open();
  ASSERT_EQ(context.ports.ports().size(), 1u);
  EXPECT_EQ(context.ports.ports().front()->address(), address);
}

TEST(Sharing, WithoutAnAddressNothingIsOpened) {
  Nic nic({.addresses = {Address()}});
  const NicContext context = nic.context();
  const std::lock_guard lock(context.lock);
  EXPECT_THROW(context.operations.open(), std::system_error);
}

std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

TEST(Sharing, APortOpensAllItsSendSocketsAtOnce) {
  UdpPort port(address_of(loopback_address(9)), 0);
  const std::uint16_t first = port.send_socket(0).port();
  const std::ptrdiff_t descriptors = open_descriptors();
  std::set<std::uint16_t> ports;
  for (std::uint32_t number = 0; number < 64; ++number) ports.insert(port.send_socket(number).port());
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(ports.size(), UdpPort::kSendSockets);
  EXPECT_EQ(port.send_socket(0).port(), first);
}

}  // namespace
}  // namespace plugfest::roce
