// Asynchronous events and completion channels.
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/system/process.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

// Cancels a thread while it waits for an event.
template <typename Wait>
void cancel_while_waiting(const Wait& wait) {
  std::atomic<pid_t> id = 0;
  std::thread waiter([&] {
    id = gettid();
    wait();
  });
  EXPECT_TRUE(wait_until([&] { return id != 0 && is_in_call(id, SYS_read); }));
  pthread_cancel(waiter.native_handle());
  waiter.join();
}

using AsyncEvents = OpenDevice;

TEST_F(AsyncEvents, ClosingTheDeviceWakesTheReader) {
  std::atomic<pid_t> id = 0;
  int result = 0;
  std::thread reader([&] {
    id = gettid();
    ibv_async_event event = {};
    result = ibv_get_async_event(context_, &event);
  });
  EXPECT_TRUE(wait_until([&] { return id != 0 && is_in_call(id, SYS_read); }));
  EXPECT_EQ(ibv_close_device(std::exchange(context_, nullptr)), 0);
  reader.join();
  EXPECT_EQ(result, -1);
}

// The destructor closes the device, which waits for threads that wait for an event.
TEST_F(AsyncEvents, MayBeWaitedForByAThreadThatIsCanceled) {
  cancel_while_waiting([&] {
    ibv_async_event event = {};
    ibv_get_async_event(context_, &event);
  });
  hosts_.fabric().set_interface_up("b", "eth0", false);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_PORT_ERR);
}

TEST_F(AsyncEvents, ReportPortDownAndUp) {
  hosts_.fabric().set_interface_up("b", "eth0", false);
  const ibv_async_event down = next_event();
  EXPECT_EQ(down.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(down.element.port_num, 1);
  hosts_.fabric().set_interface_up("b", "eth0", true);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_PORT_ACTIVE);
}

TEST_F(AsyncEvents, ReportANewAddressThatIsUsableImmediately) {
  ASSERT_EQ(hosts_.start("a", {"ip", "address", "add", "192.168.100.77/24", "dev", "eth0"}).wait().exit_code, 0);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_GID_CHANGE);
  hosts_.fabric().call("a", [&] {
    // The address takes the first empty entry, behind the link-local address if the kernel has IPv6.
    ibv_gid gid = {};
    int index = 0;
    while (index < 15 && gid.raw[15] != 77) EXPECT_EQ(ibv_query_gid(context_, 1, ++index, &gid), 0);
    EXPECT_LE(index, 2);
    ibv_pd* pd = ibv_alloc_pd(context_);
    ibv_ah_attr attributes = {};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = gid;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(index);
    ibv_ah* ah = ibv_create_ah(pd, &attributes);
    EXPECT_TRUE(ah != nullptr && ibv_destroy_ah(ah) == 0) << std::strerror(errno);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  });
}

// Queries read the addresses again after a notification only, and must not miss one.
TEST_F(AsyncEvents, AreNotNeededToSeeANewAddress) {
  const auto has_address = [&] {
    std::array<ibv_gid_entry, 16> gids;
    const ssize_t count = ibv_query_gid_table(context_, gids.data(), gids.size(), 0);
    return std::any_of(gids.begin(), gids.begin() + count, [](const auto& entry) { return entry.gid.raw[15] == 77; });
  };
  const auto change = [&](const char* action) {
    HostProcess ip = hosts_.start("a", {"ip", "address", action, "192.168.100.77/24", "dev", "eth0"});
    EXPECT_EQ(ip.wait().exit_code, 0);
  };
  for (int i = 0; i < 5; ++i) {
    hosts_.fabric().call("a", [&] { EXPECT_FALSE(has_address()); });
    change("add");
    hosts_.fabric().call("a", [&] { EXPECT_TRUE(has_address()); });
    change("del");
  }
  change("add");
  hosts_.fabric().call("a", [&] {
    const pid_t child = fork();
    if (child == 0) _exit(has_address() ? 0 : 1);
    EXPECT_EQ(await_exit(child), 0);
    EXPECT_TRUE(has_address()) << "the child has taken the notification";
  });
}

TEST_F(AsyncEvents, SupportNonBlockingDescriptors) {
  ASSERT_EQ(fcntl(context_->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event = {};
  EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// Makes the armed queue of `receiver` have an event.
void send_to_armed_queue(VerbsEndpoint& sender, VerbsEndpoint& receiver) {
  ASSERT_NO_FATAL_FAILURE(connect(sender, receiver));
  ASSERT_EQ(ibv_req_notify_cq(receiver.cq, 0), 0);
  receiver.post_receive(3);
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  ASSERT_EQ(sender.post(request), 0);
  pollfd readable = {receiver.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, -1), 1);
}

// Takes an event and returns its queue.
ibv_cq* take_event(const VerbsEndpoint& endpoint) {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(endpoint.channel, &queue, &context), 0);
  return queue;
}

TEST(CompletionChannels, AreReadableWhenTheyHaveAnEvent) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  ASSERT_NO_FATAL_FAILURE(send_to_armed_queue(a, b));
  EXPECT_EQ(take_event(b), b.cq);
  ibv_ack_cq_events(b.cq, 1);
  EXPECT_EQ(b.wait_for_completion().wr_id, 3u);
}

TEST(CompletionChannels, MayBeWaitedForByAThreadThatIsCanceled) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  cancel_while_waiting([&] { ibv_get_cq_event(b.channel, &queue, &context); });
  ASSERT_NO_FATAL_FAILURE(send_to_armed_queue(a, b));
  ASSERT_EQ(take_event(b), b.cq);
  ibv_ack_cq_events(b.cq, 1);
}

TEST(CompletionChannels, FailInAChildInsteadOfWaiting) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a", {.completion_channel = true});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that waits
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    ibv_async_event event = {};
    if (ibv_get_cq_event(endpoint.channel, &queue, &context) != -1 || errno != EIO) _exit(1);
    if (ibv_get_async_event(endpoint.context, &event) != -1 || errno != EIO) _exit(2);
    if (ibv_req_notify_cq(endpoint.cq, 0) != EIO || ibv_resize_cq(endpoint.cq, 100) != EIO) _exit(3);
    ibv_poll_cq_attr none = {};
    _exit(ibv_start_poll(endpoint.cq_ex, &none) == EIO ? 0 : 4);
  }
  EXPECT_EQ(await_exit(child), 0);
}

TEST(CompletionChannels, MayBeDestroyedByAChildBeforeItsParentAcknowledgesTheEvents) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  ASSERT_NO_FATAL_FAILURE(send_to_armed_queue(a, b));
  ASSERT_EQ(take_event(b), b.cq);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits
    _exit(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_cq(b.cq) == 0 ? 0 : 1);
  }
  EXPECT_EQ(await_exit(child), 0);
  ibv_ack_cq_events(b.cq, 1);
}

// The program never reads the event: destroying the queue must discard it without waiting.
TEST(CompletionChannels, DropEventsOfADestroyedQueue) {
  TwoHosts hosts;
  VerbsEndpoint b(hosts, "b", {.completion_channel = true});
  VerbsEndpoint a(hosts, "a");
  ASSERT_NO_FATAL_FAILURE(send_to_armed_queue(a, b));
}

TEST_F(AsyncEvents, ReachTheParentAfterAChildHasClosedTheDevice) {
  EXPECT_EQ(ibv_fork_init(), 0);
  const pid_t child = fork();
  if (child == 0) _exit(ibv_close_device(context_));
  EXPECT_EQ(await_exit(child), 0);
  hosts_.fabric().set_interface_up("b", "eth0", false);
  EXPECT_EQ(next_event().event_type, IBV_EVENT_PORT_ERR);
  ibv_async_event event = {};
  ASSERT_EQ(fcntl(context_->async_fd, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace plugfest::roce::verbs
