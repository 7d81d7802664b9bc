// Several contexts of one device in a process, including after fork() and exec().
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

TEST(Contexts, ConnectToEachOtherOnOneDevice) {
  TwoHosts hosts;
  VerbsEndpoint first(hosts, "a");
  VerbsEndpoint second(hosts, "a");
  EXPECT_NE(first.context, second.context);
  EXPECT_EQ(first.context->device, second.context->device);
  EXPECT_NE(first.qp->qp_num, second.qp->qp_num);
  ASSERT_NO_FATAL_FAILURE(connect(first, second));
  EXPECT_EQ(write_number(first, second, 1), IBV_WC_SUCCESS);
  EXPECT_EQ(write_number(second, first, 2), IBV_WC_SUCCESS);
}

// The names of the process's threads by their numbers.
std::map<std::string, std::string> names_of_threads() {
  std::map<std::string, std::string> names;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    std::getline(std::ifstream(thread.path() / "comm"), names[thread.path().filename()]);
  return names;
}

// plugfest does not take them for threads of a plugin that leaves a device open.
TEST(Contexts, HaveThreadsWithNamesOfTheNic) {
  TwoHosts hosts;
  const auto before = names_of_threads();
  const VerbsEndpoint endpoint(hosts, "a");
  std::set<std::string> added;
  EXPECT_TRUE(wait_until([&] {
    added.clear();
    for (const auto& [number, name] : names_of_threads())
      if (!before.contains(number)) added.insert(name);
    return added == std::set<std::string>{"roce-port", "roce-service"};
  })) << testing::PrintToString(added);
}

TEST(Contexts, RejectObjectsOfOtherContexts) {
  TwoHosts hosts;
  const VerbsEndpoint first(hosts, "a");
  const VerbsEndpoint second(hosts, "a", {.completion_channel = true});
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = first.cq;
  attributes.recv_cq = second.cq;
  attributes.cap = {1, 1, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  expect_error(EINVAL, [&] { return ibv_create_qp(first.pd, &attributes); });
  expect_error(EINVAL, [&] { return ibv_create_cq(first.context, 1, nullptr, second.channel, 0); });
}

TEST(Contexts, ProtectTheirMemoryFromPeersOfOtherContexts) {
  TwoHosts hosts;
  VerbsEndpoint peer(hosts, "b");
  VerbsEndpoint first(hosts, "a");
  const VerbsEndpoint second(hosts, "a");
  ASSERT_NO_FATAL_FAILURE(connect(peer, first));
  ASSERT_EQ(peer.post_write(peer.segment(0, 4), second.address(), second.mr->rkey), 0);
  EXPECT_EQ(peer.wait_for_completion().status, IBV_WC_REM_ACCESS_ERR);
}

using ConnectedContexts = Connected;

TEST_F(ConnectedContexts, WorkWhileOthersAreOpenedAndClosed) {
  const BackgroundWrites writes(a_, b_);
  for (int i = 0; i < 20; ++i) {
    VerbsEndpoint other_a(hosts_, "a");
    VerbsEndpoint other_b(hosts_, "b");
    ASSERT_NO_FATAL_FAILURE(connect(other_a, other_b));
    EXPECT_EQ(write_number(other_a, other_b, 7), IBV_WC_SUCCESS);
    writes.wait_for_progress();
  }
  writes.wait_for_progress();
}

TEST(Contexts, AllReceivePortEvents) {
  TwoHosts hosts;
  ibv_context* first = open_in(hosts, "a");
  ibv_context* second = open_in(hosts, "a");
  hosts.fabric().set_interface_up("b", "eth0", false);
  for (ibv_context* context : {first, second}) {
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
}

// Many queue pairs of one context with a common completion queue. Each becomes VerbsEndpoint::qp for each use, and
// writes its own word of the peer's memory.
class ManyQueuePairs {
 public:
  static constexpr std::uint32_t kCount = 300;

  ManyQueuePairs(TwoHosts& hosts, const std::string& host) : endpoint_(hosts, host) {
    EXPECT_EQ(ibv_resize_cq(endpoint_.cq, 2 * kCount), 0);
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = endpoint_.cq;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      pairs_.push_back(ibv_create_qp(endpoint_.pd, &attributes));
      EXPECT_NE(pairs_.back(), nullptr) << std::strerror(errno);
    }
  }
  ~ManyQueuePairs() {
    for (ibv_qp* pair : pairs_) EXPECT_EQ(ibv_destroy_qp(pair), 0);
  }

  void connect_to(ManyQueuePairs& peer) {
    const ibv_gid gid = peer.endpoint_.gid();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::swap(endpoint_.qp, pairs_[i]);
      EXPECT_EQ(endpoint_.to_init(), 0);
      EXPECT_EQ(endpoint_.to_rtr(peer.pairs_[i]->qp_num, gid), 0);
      EXPECT_EQ(endpoint_.to_rts(), 0);
      std::swap(endpoint_.qp, pairs_[i]);
    }
  }

  void write_to(const ManyQueuePairs& peer) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint32_t value = i + pairs_[0]->qp_num;
      std::memcpy(endpoint_.memory.data() + 4 * i, &value, sizeof(value));
      std::swap(endpoint_.qp, pairs_[i]);
      const int error = endpoint_.post_write(endpoint_.segment(4 * i, 4), peer.endpoint_.address(kTarget + 4 * i),
                                             peer.endpoint_.mr->rkey);
      std::swap(endpoint_.qp, pairs_[i]);
      ASSERT_EQ(error, 0);
    }
    for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(endpoint_.wait_for_completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(endpoint_.memory.data(), peer.endpoint_.memory.data() + kTarget, 4 * kCount), 0);
  }

 private:
  static constexpr std::size_t kTarget = 2048;

  VerbsEndpoint endpoint_;
  std::vector<ibv_qp*> pairs_;
};

TEST(Contexts, HaveHundredsOfQueuePairsEach) {
  TwoHosts hosts;
  ManyQueuePairs first_a(hosts, "a");
  ManyQueuePairs first_b(hosts, "b");
  ManyQueuePairs second_a(hosts, "a");
  ManyQueuePairs second_b(hosts, "b");
  first_a.connect_to(first_b);
  first_b.connect_to(first_a);
  second_a.connect_to(second_b);
  second_b.connect_to(second_a);
  ASSERT_NO_FATAL_FAILURE(first_a.write_to(first_b));
  ASSERT_NO_FATAL_FAILURE(second_a.write_to(second_b));
  ASSERT_NO_FATAL_FAILURE(second_b.write_to(second_a));
  ASSERT_NO_FATAL_FAILURE(first_b.write_to(first_a));
}

TEST_F(ConnectedContexts, WorkWhileOtherProcessesUseTheDevice) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  const BackgroundWrites writes(a_, b_);
  writes.wait_for_progress();
  hosts_.run_server_and_client({"ibv_rc_pingpong", "-g", "0", "-n", "200"});
  writes.wait_for_progress();
}

// The number of a queue pair begins with the slot of its process.
TEST(Contexts, HaveDifferentSlotsInProcessesThatStartWithDifferentAddresses) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  const VerbsEndpoint before(hosts, "a");
  EXPECT_EQ(before.qp->qp_num >> 16, 1u);
  const std::string change = "ip address flush dev eth0 && ip address add 192.168.100.77/24 dev eth0";
  ASSERT_EQ(hosts.start("a", {"sh", "-c", change}).wait().exit_code, 0);
  HostProcess after = hosts.start("a", {"stdbuf", "-oL", "ibv_rc_pingpong", "-d", "roce_eth0", "-g", "0"});
  after.wait_until_listening(kExchangePort);
  EXPECT_NE(after.output().find("QPN 0x02"), std::string::npos) << after.output();
}

TEST(Contexts, HaveValidDescriptors) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  const int command = context->cmd_fd;
  EXPECT_NE(fcntl(command, F_GETFD), -1);
  EXPECT_NE(fcntl(context->async_fd, F_GETFD), -1);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(fcntl(command, F_GETFD), -1);
}

TEST(Contexts, CloseTheirDescriptorsOnExec) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a", {.completion_channel = true});
  ASSERT_EQ(a.to_init(), 0);
  const Finished list = run_shell("exec ls -l /proc/self/fd");
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_EQ(list.output.find("socket:"), std::string::npos) << list.output;
  EXPECT_EQ(list.output.find("eventfd"), std::string::npos) << list.output;
}

// In a child, inherited objects fail and new ones work. The parent is not affected.
TEST_F(ConnectedContexts, WorkInAChildThatOpenedThem) {
  ASSERT_EQ(write_number(a_, b_, 1), IBV_WC_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    VerbsEndpoint own(hosts_, "a");
    connect_to_itself(own);
    const bool own_works = !HasFatalFailure() && write_number(own, own, 2) == IBV_WC_SUCCESS;
    ibv_wc completion = {};
    const bool inherited_fails = ibv_poll_cq(a_.cq, 1, &completion) < 0;
    _exit(own_works && inherited_fails && !HasFailure() ? 0 : 1);
  }
  EXPECT_EQ(await_exit(child), 0);
  EXPECT_EQ(write_number(a_, b_, 3), IBV_WC_SUCCESS);
}

TEST_F(ConnectedContexts, MayBeClosedByAChildThatHasOpenedItsOwn) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits
    hosts_.fabric().call("a", [&] {
      // So many threads that one has the handle of the thread that watches the port in the parent.
      std::array<ibv_context*, 16> own = {};
      for (ibv_context*& context : own) context = ibv_open_device(a_.context->device);
      if (own.back() == nullptr) _exit(1);
      if (ibv_close_device(a_.context) != 0) _exit(2);
      for (ibv_context* const context : own)
        if (ibv_close_device(context) != 0) _exit(3);
    });
    _exit(0);
  }
  EXPECT_EQ(await_exit(child), 0);
  EXPECT_EQ(write_number(a_, b_, 1), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace plugfest::roce::verbs
