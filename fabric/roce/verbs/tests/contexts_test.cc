// Several contexts of one device in a process: their objects are separate, and one may go while another works. The
// program may fork and execute others meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/roce/verbs/testing/end.h"
#include "fabric/roce/verbs/testing/traffic.h"

namespace plugfest::roce {
namespace {

TEST(Contexts, OfOneDeviceTalkToEachOther) {
  TwoHosts hosts;
  End first(hosts, "a");
  End second(hosts, "a");
  EXPECT_NE(first.context, second.context);
  EXPECT_EQ(first.context->device, second.context->device);
  EXPECT_NE(first.qp->qp_num, second.qp->qp_num);
  ASSERT_NO_FATAL_FAILURE(connect(hosts, first, second));
  EXPECT_EQ(write_number(first, second, 1), IBV_WC_SUCCESS);
  EXPECT_EQ(write_number(second, first, 2), IBV_WC_SUCCESS);
}

TEST(Contexts, HaveObjectsOfTheirOwn) {
  TwoHosts hosts;
  const End first(hosts, "a");
  const End second(hosts, "a", false, true);
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = first.cq;
  attributes.recv_cq = second.cq;
  attributes.cap = {1, 1, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(first.pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(first.context, 1, nullptr, second.channel, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Contexts, KeepTheirMemoryFromEachOthersPeers) {
  TwoHosts hosts;
  End peer(hosts, "b");
  End first(hosts, "a");
  const End second(hosts, "a");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, peer, first));
  ibv_send_wr request = {};
  ibv_sge segment = {reinterpret_cast<std::uintptr_t>(peer.memory.data()), 4, peer.mr->lkey};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {reinterpret_cast<std::uintptr_t>(second.memory.data()), second.mr->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(peer.qp, &request, &bad), 0);
  EXPECT_EQ(peer.wait_for_completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Contexts, GoOnWhenAnotherIsClosed) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  const Traffic traffic(a, b);
  for (int i = 0; i < 20; ++i) {
    End other_a(hosts, "a");
    End other_b(hosts, "b");
    ASSERT_NO_FATAL_FAILURE(connect(hosts, other_a, other_b));
    EXPECT_EQ(write_number(other_a, other_b, 7), IBV_WC_SUCCESS);
    traffic.wait_for_more();
  }
  traffic.wait_for_more();
}

TEST(Contexts, EachHearOfThePort) {
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

// More queue pairs of a context: all on one completion queue, each with a word of the other side's memory.
class ManyPairs {
 public:
  static constexpr std::uint32_t kCount = 300;

  ManyPairs(TwoHosts& hosts, const std::string& host) : end_(hosts, host) {
    // Room for a completion of each.
    EXPECT_EQ(ibv_resize_cq(end_.cq, 2 * kCount), 0);
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = end_.cq;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      pairs_.push_back(ibv_create_qp(end_.pd, &attributes));
      EXPECT_NE(pairs_.back(), nullptr) << std::strerror(errno);
    }
  }
  ~ManyPairs() {
    for (ibv_qp* pair : pairs_) EXPECT_EQ(ibv_destroy_qp(pair), 0);
  }

  void connect_to(TwoHosts& hosts, ManyPairs& peer) {
    const ibv_gid gid = gid_of_end(hosts, peer.end_);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::swap(end_.qp, pairs_[i]);  // the end connects the queue pair that it has
      EXPECT_EQ(end_.to_init(), 0);
      EXPECT_EQ(end_.to_rtr(peer.pairs_[i]->qp_num, gid), 0);
      EXPECT_EQ(end_.to_rts(), 0);
      std::swap(end_.qp, pairs_[i]);
    }
  }

  void write_to(const ManyPairs& peer) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      char* const word = end_.memory.data() + 4 * i;
      const std::uint32_t value = i + pairs_[0]->qp_num;
      std::memcpy(word, &value, sizeof(value));
      ibv_sge segment = {reinterpret_cast<std::uintptr_t>(word), 4, end_.mr->lkey};
      ibv_send_wr request = {};
      request.sg_list = &segment;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma = {reinterpret_cast<std::uintptr_t>(peer.end_.memory.data()) + kTarget + 4 * i,
                         peer.end_.mr->rkey};
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(pairs_[i], &request, &bad), 0);
    }
    for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(end_.wait_for_completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(end_.memory.data(), peer.end_.memory.data() + kTarget, 4 * kCount), 0);
  }

 private:
  static constexpr std::size_t kTarget = 2048;

  End end_;
  std::vector<ibv_qp*> pairs_;
};

TEST(Contexts, HaveHundredsOfQueuePairsEach) {
  TwoHosts hosts;
  ManyPairs first_a(hosts, "a");
  ManyPairs first_b(hosts, "b");
  ManyPairs second_a(hosts, "a");
  ManyPairs second_b(hosts, "b");
  first_a.connect_to(hosts, first_b);
  first_b.connect_to(hosts, first_a);
  second_a.connect_to(hosts, second_b);
  second_b.connect_to(hosts, second_a);
  ASSERT_NO_FATAL_FAILURE(first_a.write_to(first_b));
  ASSERT_NO_FATAL_FAILURE(second_a.write_to(second_b));
  ASSERT_NO_FATAL_FAILURE(second_b.write_to(second_a));
  ASSERT_NO_FATAL_FAILURE(first_b.write_to(first_a));
}

int exit_code_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Contexts, GoOnWhileTheProgramRunsOthersThatUseTheDevice) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  const Traffic traffic(a, b);
  traffic.wait_for_more();
  constexpr std::uint16_t kExchangePort = 18515;
  HostProcess server = hosts.start("a", {"ibv_rc_pingpong", "-g", "0", "-n", "200"});
  hosts.wait_until_listening(server, kExchangePort);
  HostProcess client = hosts.start("b", {"ibv_rc_pingpong", "-g", "0", "-n", "200", hosts.address_of_a()});
  const netns::Finished of_client = client.wait();
  EXPECT_EQ(of_client.exit_code, 0) << of_client.output;
  const netns::Finished of_server = server.wait();
  EXPECT_EQ(of_server.exit_code, 0) << of_server.output;
  traffic.wait_for_more();
}

TEST(Contexts, LeaveNoDescriptorsToProgramsThatAreExecuted) {
  TwoHosts hosts;
  End a(hosts, "a", false, true);
  ASSERT_EQ(a.to_init(), 0);
  int output[2];
  ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    execl("/bin/ls", "ls", "-l", "/proc/self/fd", nullptr);
    _exit(127);
  }
  close(output[1]);
  std::string listing;
  char part[4096];
  for (ssize_t count; (count = read(output[0], part, sizeof(part))) > 0;)
    listing.append(part, static_cast<std::size_t>(count));
  close(output[0]);
  EXPECT_EQ(exit_code_of(child), 0);
  EXPECT_EQ(listing.find("socket:"), std::string::npos) << listing;
  EXPECT_EQ(listing.find("eventfd"), std::string::npos) << listing;
}

// What the child has opened itself works; what it has inherited does not, and its parent goes on.
TEST(Contexts, OpenedByAChildWorkThere) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ASSERT_EQ(write_number(a, b, 1), IBV_WC_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    End own(hosts, "a");
    const bool connected = own.qp != nullptr && own.to_init() == 0 &&
                           own.to_rtr(own.qp->qp_num, gid_of_end(hosts, own)) == 0 && own.to_rts() == 0;
    const bool works = connected && write_number(own, own, 2) == IBV_WC_SUCCESS;
    ibv_wc completion = {};
    const bool inherited_is_dead = ibv_poll_cq(a.cq, 1, &completion) < 0;
    _exit(works && inherited_is_dead && !HasFailure() ? 0 : 1);
  }
  EXPECT_EQ(exit_code_of(child), 0);
  EXPECT_EQ(write_number(a, b, 3), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace plugfest::roce
