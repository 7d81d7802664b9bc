// The verbs ABI as a program uses it: this test is linked with the library as any verbs program is.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "fabric/roce/verbs/testing/end.h"
#include "fabric/roce/verbs/testing/two_hosts.h"

namespace plugfest::roce {
namespace {

// Returns when a thread of this process is inside read().
void wait_until_reading(pid_t thread) {
  for (;;) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
    long number = -1;
    if (file >> number && number == SYS_read) return;
    std::this_thread::yield();
  }
}

TEST(Devices, AreTheSameInTwoLists) {
  TwoHosts hosts;
  hosts.fabric().call("a", [] {
    int count = 0;
    ibv_device** first = ibv_get_device_list(&count);
    ibv_device** second = ibv_get_device_list(nullptr);
    EXPECT_EQ(count, 2);
    for (int i = 0; i <= count; ++i) EXPECT_EQ(first[i], second[i]);
    ibv_free_device_list(first);
    EXPECT_STREQ(ibv_get_device_name(second[0]), "roce_eth0");  // still shown by the second
    ibv_free_device_list(second);
  });
}

TEST(Devices, HaveGuidsOfTheirOwn) {
  TwoHosts hosts;
  hosts.fabric().call("a", [] {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT_NE(ibv_get_device_guid(list[0]), 0u);
    EXPECT_NE(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
    ibv_free_device_list(list);
  });
}

TEST(Devices, AreNotTakenForThoseOfAHardwareDriver) {
  void* driver = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) GTEST_SKIP() << "needs libmlx5: " << dlerror();
  const auto is_supported = reinterpret_cast<bool (*)(ibv_device*)>(dlsym(driver, "mlx5dv_is_supported"));
  ASSERT_NE(is_supported, nullptr);
  TwoHosts hosts;
  hosts.fabric().call("a", [&] {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT_FALSE(is_supported(list[0]));
    ibv_free_device_list(list);
  });
}

TEST(Devices, ArePickedByTheEnvironment) {
  TwoHosts hosts;
  setenv("PLUGFEST_ROCE_INTERFACES", "eth7,eth1", 1);
  hosts.fabric().call("a", [] {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    EXPECT_EQ(count, 1);
    EXPECT_STREQ(ibv_get_device_name(list[0]), "roce_eth1");
    ibv_free_device_list(list);
  });
  unsetenv("PLUGFEST_ROCE_INTERFACES");
}

TEST(Queries, GiveTheRoceGidAndTheDefaultPKey) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ASSERT_NE(context, nullptr);
  hosts.fabric().call("a", [&] {
    ibv_gid_entry entry = {};
    EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    const std::uint8_t expected[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 100, 1};
    EXPECT_EQ(std::memcmp(entry.gid.raw, expected, sizeof(expected)), 0);
    EXPECT_EQ(ibv_query_gid_ex(context, 2, 0, &entry, 0), EINVAL);
    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_get_pkey_index(context, 1, pkey), 0);
    ibv_port_attr port = {};
    EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    // The link-local IPv6 address follows, where the kernel has IPv6. The rest of the table is empty.
    std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port.gid_tbl_len));
    const ssize_t found = ibv_query_gid_table(context, table.data(), table.size(), 0);
    ASSERT_GE(found, 1);
    for (ssize_t i = 0; i < found; ++i) EXPECT_EQ(table[static_cast<std::size_t>(i)].gid_index, i);
    for (ssize_t i = 1; i < found; ++i) EXPECT_EQ(table[static_cast<std::size_t>(i)].gid.raw[0], 0xfe);
    EXPECT_EQ(ibv_query_gid_table(context, table.data(), static_cast<std::size_t>(found - 1), 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, static_cast<std::uint32_t>(found), &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context, 1, static_cast<std::uint32_t>(port.gid_tbl_len), &entry, 0), EINVAL);
    ibv_gid empty = {.raw = {1}};
    EXPECT_EQ(ibv_query_gid(context, 1, port.gid_tbl_len - 1, &empty), 0);
    EXPECT_EQ(empty.global.subnet_prefix | empty.global.interface_id, 0u);
    EXPECT_EQ(ibv_query_gid(context, 1, port.gid_tbl_len, &empty), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_query_gid(context, 1, -1, &empty), -1);
  });
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Objects, InUseAreBusy) {
  TwoHosts hosts;
  End end(hosts, "a", false, true);
  ASSERT_NE(end.qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(end.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(end.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(end.channel), EBUSY);
}

TEST(Objects, MayOutliveTheirContext) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ibv_pd* pd = ibv_alloc_pd(context);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(Objects, ThatAreNotOfferedFailWithEopnotsupp) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ibv_pd* pd = ibv_alloc_pd(context);
  errno = 0;
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0), nullptr);  // as NCCL asks whether it is offered for GPU memory
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_alloc_dm_attr memory = {};
  EXPECT_EQ(ibv_alloc_dm(context, &memory), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_xrcd_init_attr xrcd = {};
  EXPECT_EQ(ibv_open_xrcd(context, &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_cq_init_attr_ex queue = {};
  queue.cqe = 1;
  queue.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ibv_create_cq_ex(context, &queue), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Objects, MemoryBehindADescriptorIsReachedByItsOffset) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  connect(hosts, a, b);
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  constexpr std::uint64_t kOffset = 4096 + 100;
  constexpr std::uint64_t kIova = 0x1000;
  errno = 0;
  EXPECT_EQ(ibv_reg_dmabuf_mr(b.pd, kOffset, 8192, kIova, fd, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);  // beyond its end
  ibv_mr* region = ibv_reg_dmabuf_mr(b.pd, kOffset, 1000, kIova, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(region, nullptr) << std::strerror(errno);
  std::strcpy(a.memory.data(), "through the file");
  ibv_sge segment = {reinterpret_cast<std::uintptr_t>(a.memory.data()), 17, a.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {kIova + 10, region->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &request, &bad), 0);
  EXPECT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
  char text[17] = {};
  EXPECT_EQ(pread(fd, text, sizeof(text), kOffset + 10), 17);
  EXPECT_STREQ(text, "through the file");
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  close(fd);
}

TEST(Objects, AskedForWithImpossibleNumbersFailWithEinval) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  EXPECT_EQ(ibv_create_cq(context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context, 1, nullptr, nullptr, context->num_comp_vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(AsyncEvents, ReaderIsWokenWhenTheDeviceIsClosed) {
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

TEST(AsyncEvents, TellThatThePortGoesDownAndComesBack) {
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

TEST(AsyncEvents, TellThatAnAddressCameWhichMayThenBeUsed) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ASSERT_EQ(hosts.start("a", {"ip", "address", "add", "192.168.100.77/24", "dev", "eth0"}).wait().exit_code, 0);
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
  ibv_ack_async_event(&event);
  hosts.fabric().call("a", [&] {
    // It takes the first place that is empty: behind the link-local one, where the kernel has IPv6.
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

TEST(QueuePairs, RefuseAPathMtuThatTheInterfaceHasNoMore) {
  TwoHosts hosts;
  End end(hosts, "a");
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(hosts.start("a", {"ip", "link", "set", "eth0", "mtu", "600"}).wait().exit_code, 0);
  ibv_port_attr port = {};
  hosts.fabric().call("a", [&] { EXPECT_EQ(ibv_query_port(end.context, 1, &port), 0); });
  EXPECT_EQ(port.active_mtu, IBV_MTU_512);
  EXPECT_EQ(end.to_rtr(1, gid_of_end(hosts, end)), EINVAL);  // asks for 1024
}

TEST(AsyncEvents, DescriptorMayBeNonBlocking) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event = {};
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_close_device(context), 0);
}

// A child may close what it inherited; the parent's events and connections go on.
TEST(Fork, ChildClosesItsCopyWithoutDisturbingTheParent) {
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

TEST(QueuePairs, SayWhatStateTheyAreIn) {
  TwoHosts hosts;
  End end(hosts, "a");
  ASSERT_NE(end.qp, nullptr);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr initial = {};
  ASSERT_EQ(ibv_query_qp(end.qp, &attributes, IBV_QP_STATE, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(initial.send_cq, end.cq);
  EXPECT_GE(initial.cap.max_send_wr, 16u);
  ASSERT_EQ(end.to_init(), 0);
  EXPECT_EQ(end.qp->state, IBV_QPS_INIT);
  ASSERT_EQ(end.to_rtr(end.qp->qp_num, gid_of_end(hosts, end)), 0);
  ASSERT_EQ(ibv_query_qp(end.qp, &attributes, IBV_QP_STATE, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(attributes.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attributes.dest_qp_num, end.qp->qp_num);
  EXPECT_EQ(attributes.rq_psn, 77u);
}

TEST(QueuePairs, RefuseToSkipAState) {
  TwoHosts hosts;
  End end(hosts, "a");
  EXPECT_EQ(end.to_rts(), EINVAL);
}

TEST(QueuePairs, WriteWithImmediateAndNoBytes) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  b.post_receive(5);
  ibv_send_wr request = {};
  request.wr_id = 9;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = 0x01020304;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(b.memory.data());
  request.wr.rdma.rkey = b.mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &request, &bad), 0);
  const ibv_wc received = b.wait_for_completion();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, 0x01020304u);
  EXPECT_EQ(received.byte_len, 0u);
  EXPECT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
}

TEST(QueuePairs, TalkToThemselves) {
  TwoHosts hosts;
  End end(hosts, "a");
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(end.qp->qp_num, gid_of_end(hosts, end)), 0);
  ASSERT_EQ(end.to_rts(), 0);
  std::strcpy(end.memory.data(), "to myself");
  ibv_sge segment = {reinterpret_cast<std::uintptr_t>(end.memory.data()), 10, end.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(end.memory.data() + 100);
  request.wr.rdma.rkey = end.mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(end.qp, &request, &bad), 0);
  EXPECT_EQ(end.wait_for_completion().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(end.memory.data() + 100, "to myself");
}

TEST(ExtendedVerbs, PostInlineAndPollLazily) {
  TwoHosts hosts;
  End a(hosts, "a", true);
  End b(hosts, "b", true);
  ASSERT_NE(a.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  b.post_receive(1);
  b.post_receive(2);

  ibv_qp_ex* extended = ibv_qp_to_qp_ex(a.qp);
  ASSERT_NE(extended, nullptr);
  char text[] = "first half, second half";
  ibv_data_buf halves[] = {{text, 11}, {text + 11, sizeof(text) - 11}};
  ibv_wr_start(extended);
  extended->wr_id = 100;
  extended->wr_flags = 0;
  ibv_wr_rdma_write(extended, b.mr->rkey, reinterpret_cast<std::uintptr_t>(b.memory.data() + 2048));
  ibv_wr_set_inline_data_list(extended, 2, halves);
  extended->wr_id = 101;
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(extended);
  ibv_wr_set_sge(extended, a.mr->lkey, reinterpret_cast<std::uintptr_t>(a.memory.data()), 10);
  std::memset(text, 'x', sizeof(text));  // inline bytes are the library's by now
  ASSERT_EQ(ibv_wr_complete(extended), 0);

  ibv_poll_cq_attr none = {};
  int result;
  while ((result = ibv_start_poll(b.cq_ex, &none)) == ENOENT) {
  }
  ASSERT_EQ(result, 0);
  EXPECT_EQ(b.cq_ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.cq_ex->wr_id, 1u);
  EXPECT_EQ(ibv_wc_read_opcode(b.cq_ex), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(b.cq_ex), 10u);
  EXPECT_EQ(ibv_wc_read_qp_num(b.cq_ex), b.qp->qp_num);
  EXPECT_EQ(ibv_next_poll(b.cq_ex), ENOENT);
  ibv_end_poll(b.cq_ex);
  EXPECT_STREQ(b.memory.data() + 2048, "first half, second half");

  EXPECT_EQ(a.wait_for_completion().wr_id, 101u);  // the write was not signalled
}

TEST(ExtendedVerbs, AreOnlyForQueuePairsMadeForThem) {
  TwoHosts hosts;
  End end(hosts, "a");
  EXPECT_EQ(ibv_qp_to_qp_ex(end.qp), nullptr);
}

TEST(CompletionChannels, AnnounceAndAreReadable) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b", false, true);
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  b.post_receive(3);
  ibv_sge segment = {reinterpret_cast<std::uintptr_t>(a.memory.data()), 8, a.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &request, &bad), 0);
  pollfd readable = {b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, -1), 1);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel, &queue, &context), 0);
  EXPECT_EQ(queue, b.cq);
  ibv_ack_cq_events(queue, 1);
  EXPECT_EQ(b.wait_for_completion().wr_id, 3u);
}

TEST(CompletionChannels, ForgetAQueueThatIsDestroyed) {
  TwoHosts hosts;
  End b(hosts, "b", false, true);
  {
    End a(hosts, "a");
    ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
    ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    b.post_receive(3);
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(a.qp, &request, &bad), 0);
    pollfd readable = {b.channel->fd, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, -1), 1);
  }
  // The event is never taken: destroying b's queue must take it back, and not wait for it.
}

}  // namespace
}  // namespace plugfest::roce
