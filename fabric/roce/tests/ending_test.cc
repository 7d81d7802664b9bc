// A process that exits without destroying its NIC.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "fabric/roce/counters/names.h"
#include "fabric/roce/port/socket_calls.h"
#include "fabric/roce/testing/two_nics.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

class Ending : public testing::Test {
 protected:
  Ending() { make_counter_files(device_folder_); }

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

// Sends one message to the peer it is told, and calls exit().
[[noreturn]] void send_and_exit(int number_of_peer, const std::string& from, const std::string& to,
                                const std::filesystem::path& device_folder) {
  std::uint32_t number = 0;
  if (read(number_of_peer, &number, sizeof(number)) != sizeof(number)) std::_Exit(1);
  auto* side = new Side(from, 4096, parse_faults("delay=20ms"), IBV_QPT_UC, device_folder);
  connect(*side->queue_pair, to, number, unreliable());
  std::exit(side->post_send(IBV_WR_SEND, 1, 0, 100));
}

TEST_F(Ending, DelayedPacketsAreSentAndCountersPublished) {
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
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ibv_wc completion = {};
  while (receiver.completions.poll(1, &completion) == 0) {
  }
  EXPECT_EQ(completion.wr_id, 7u);
  EXPECT_EQ(completion.byte_len, 100u);
  EXPECT_EQ(counter("counters/port_xmit_packets"), "1");
  EXPECT_EQ(counter("hw_counters/delayed_packets"), "1");
  close(ends[1]);
}

// Receives one message and exits.
[[noreturn]] void receive_and_exit(int numbers, const std::string& at, const std::string& from) {
  Side side(at, 4096);
  const std::uint32_t own = side.queue_pair->number();
  std::uint32_t number = 0;
  if (write(numbers, &own, sizeof(own)) != sizeof(own) || read(numbers, &number, sizeof(number)) != sizeof(number))
    std::_Exit(1);
  connect(*side.queue_pair, from, number, {});
  if (side.post_receive(1, 0, 100) != 0) std::_Exit(1);
  ibv_wc completion = {};
  while (side.completions.poll(1, &completion) == 0) {
  }
  std::exit(completion.status);
}

TEST(ExitingProcess, AcknowledgesReceivedMessages) {
  const std::string here = loopback_address(1), there = loopback_address(2);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const pid_t child = fork();
  close(ends[child == 0 ? 1 : 0]);  // each process keeps one end only
  if (child == 0) receive_and_exit(ends[0], there, here);
  Side sender(here, 4096);
  std::uint32_t number = 0;
  ASSERT_EQ(read(ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  connect(*sender.queue_pair, there, number, {});
  number = sender.queue_pair->number();
  ASSERT_EQ(write(ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  ASSERT_EQ(sender.post_send(IBV_WR_SEND, 1, 0, 100), 0);
  ibv_wc completion = {};
  while (sender.completions.poll(1, &completion) == 0) {
  }
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ends[1]);
}

TEST(CancelledThread, LeavesTheNicUsable) {
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

}  // namespace
}  // namespace plugfest::roce
