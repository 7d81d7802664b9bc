// The program forks during traffic: the parent continues; the child may call exec, exit, or try to use the NIC.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce {
namespace {

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
      ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, 1, 0, kBytes,
                                 [&](ibv_send_wr& request) {
                                   request.wr.rdma = {nics.b.at(0), nics.b.region->key()};
                                 }),
                0);
      ASSERT_EQ(nics.at_a(1).front().status, IBV_WC_SUCCESS);
      ASSERT_EQ(std::memcmp(nics.a.buffer.data(), nics.b.buffer.data(), kBytes), 0);
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

int exit_code_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <typename Body>
void fork_amid_traffic(TwoNics& nics, Body body) {
  Traffic traffic(nics);
  for (int i = 0; i < 20; ++i) {
    const unsigned before = traffic.rounds();
    const pid_t child = fork_child(body);
    ASSERT_GT(child, 0);
    EXPECT_EQ(exit_code_of(child), 0);
    while (traffic.rounds() == before && !testing::Test::HasFailure()) std::this_thread::yield();
  }
}

TEST(Fork, ParentContinuesWhenChildrenExit) {
  TwoNics nics;
  fork_amid_traffic(nics, [] { return 0; });
}

TEST(Fork, ParentContinuesWhenChildrenCallExec) {
  TwoNics nics;
  fork_amid_traffic(nics, [] {
    execl("/bin/true", "true", nullptr);
    return 1;
  });
}

TEST(Fork, ParentContinuesWhenChildrenUseItsQueues) {
  TwoNics nics;
  fork_amid_traffic(nics, [&nics] {
    ibv_wc completion;
    if (nics.a.completions.poll(1, &completion) != -1) return 1;
    if (nics.a.post_receive(1, 0, 100) == 0) return 2;
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
  EXPECT_EQ(exit_code_of(child), 0);
}

}  // namespace
}  // namespace plugfest::roce
