// Peers whose process has ended, so that their host reports that the RoCE port is closed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

// Receives one message, and then does nothing.
[[noreturn]] void receive_and_stay(int numbers, const std::string& at, const std::string& from) {
  Side side(at, 4096);
  const std::uint32_t own = side.queue_pair->number();
  std::uint32_t number = 0;
  if (write(numbers, &own, sizeof(own)) != sizeof(own) || read(numbers, &number, sizeof(number)) != sizeof(number))
    std::_Exit(1);
  connect(*side.queue_pair, from, number, {});
  if (side.post_receive(1, 0, 100) != 0) std::_Exit(1);
  side.next_completion();
  while (true) pause();
}

// Its host reports that the port is closed.
TEST(KilledProcess, IsNoticedByItsPeerBeforeATimeout) {
  const std::string here = loopback_address(1), there = loopback_address(2);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const pid_t child = fork();
  close(ends[child == 0 ? 1 : 0]);  // each process keeps one end only
  if (child == 0) receive_and_stay(ends[0], there, here);
  Side sender(here, 4096);
  std::uint32_t number = 0;
  ASSERT_EQ(read(ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  constexpr std::uint8_t kHours = 31;
  connect(*sender.queue_pair, there, number, {.timeout = kHours});
  number = sender.queue_pair->number();
  ASSERT_EQ(write(ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_SUCCESS);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 2, 0, 100), 0);
  EXPECT_EQ(sender.next_completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(sender.nic.counters().timeouts, 0u);
  close(ends[1]);
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

}  // namespace
}  // namespace plugfest::roce
