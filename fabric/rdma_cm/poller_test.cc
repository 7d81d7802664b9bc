#include "fabric/rdma_cm/poller.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <mutex>
#include <stdexcept>

#include "fabric/rdma_cm/testing.h"
#include "fabric/system/descriptor_passing.h"

namespace plugfest::rdma_cm {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class PollerTest : public testing::Test {
 protected:
  Polling& polling = *new Polling;  // never destroyed: its thread does not end
  std::mutex& lock = polling.lock;
  Poller& poller = polling.poller;
};

TEST_F(PollerTest, EndsTheConnectionOfAHandlerThatThrows) {
  const auto [own, peer] = make_socket_pair("make a connection");
  std::promise<ssize_t> received;
  {
    const std::lock_guard guard(lock);
    poller.add(own.get(), EPOLLIN, [&, socket = own.get()](std::uint32_t) {
      char byte = 0;
      const ssize_t size = ::read(socket, &byte, 1);
      if (size > 0) throw std::runtime_error("no memory");
      poller.remove(socket);
      received.set_value(size);
    });
  }
  ASSERT_EQ(::write(peer.get(), "x", 1), 1);
  EXPECT_EQ(received.get_future().get(), 0) << "the handler is told of the end";
  char byte = 0;
  EXPECT_EQ(::read(peer.get(), &byte, 1), 0) << "the peer is told too";
}

TEST_F(PollerTest, KeepsTheSocketThatAHandlerRemovesBeforeItThrows) {
  const auto [own, peer] = make_socket_pair("make a connection");
  std::promise<void> removed;
  {
    const std::lock_guard guard(lock);
    poller.add(own.get(), EPOLLIN, [&, socket = own.get()](std::uint32_t) {
      poller.remove(socket);
      removed.set_value();
      throw std::runtime_error("no memory");
    });
  }
  ASSERT_EQ(::write(peer.get(), "x", 1), 1);
  removed.get_future().get();
  const std::lock_guard guard(lock);  // after the handler
  EXPECT_EQ(::write(own.get(), "y", 1), 1);
}

TEST_F(PollerTest, CallsOtherTimersAfterOneThatThrows) {
  std::promise<void> expired;
  std::unique_lock guard(lock);
  Timer failing(poller, [] { throw std::runtime_error("no memory"); });
  Timer other(poller, [&] { expired.set_value(); });
  failing.start(1ms);
  other.start(20ms);
  guard.unlock();
  EXPECT_EQ(expired.get_future().wait_for(30s), std::future_status::ready);
  guard.lock();  // destroys the timers
}

}  // namespace
}  // namespace plugfest::rdma_cm
