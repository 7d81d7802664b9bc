// Asynchronous events, completion channels, and fork().
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "fabric/roce/verbs/testing/verbs_endpoint.h"

namespace plugfest::roce {
namespace {

// Waits until a thread of this process is blocked in read().
void wait_until_reading(pid_t thread) {
  for (;;) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
    long number = -1;
    if (file >> number && number == SYS_read) return;
    std::this_thread::yield();
  }
}

TEST(AsyncEvents, ClosingTheDeviceWakesTheReader) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  std::atomic<pid_t> id = 0;
  int result = 0;
  std::thread reader([&] {
    id = gettid();
    ibv_async_event event = {};
    result = ibv_get_async_event(context, &event);
  });
  while (id == 0) std::this_thread::yield();
  wait_until_reading(id);
  EXPECT_EQ(ibv_close_device(context), 0);
  reader.join();
  EXPECT_EQ(result, -1);
}

TEST(AsyncEvents, ReportPortDownAndUp) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ibv_async_event event = {};
  hosts.fabric().set_interface_up("b", "eth0", false);
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
  hosts.fabric().set_interface_up("b", "eth0", true);
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(AsyncEvents, ReportANewAddressThatIsUsableImmediately) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ASSERT_EQ(hosts.start("a", {"ip", "address", "add", "192.168.100.77/24", "dev", "eth0"}).wait().exit_code, 0);
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
  ibv_ack_async_event(&event);
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
    if (ah != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah), 0);
    }
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  });
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(AsyncEvents, SupportNonBlockingDescriptors) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event = {};
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_close_device(context), 0);
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

TEST(Fork, ClosingInTheChildDoesNotAffectTheParent) {
  TwoHosts hosts;
  EXPECT_EQ(ibv_fork_init(), 0);
  ibv_context* context = open_in(hosts, "a");
  const pid_t child = fork();
  if (child == 0) _exit(ibv_close_device(context));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  hosts.fabric().set_interface_up("b", "eth0", false);
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  ibv_ack_async_event(&event);
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace plugfest::roce
