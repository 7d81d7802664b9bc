// Lifetimes of verbs objects, invalid arguments, and dma-buf memory regions.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

TEST(Objects, FailWithEbusyWhileInUse) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a", {.completion_channel = true});
  ASSERT_NE(endpoint.qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(endpoint.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(endpoint.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(endpoint.channel), EBUSY);
}

TEST(Objects, MayOutliveTheirContext) {
  TwoHosts hosts;
  ibv_context* context = open_in(hosts, "a");
  ibv_pd* pd = ibv_alloc_pd(context);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

using InvalidCalls = OpenDevice;

TEST_F(InvalidCalls, FailWithEopnotsuppIfUnsupported) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ibv_alloc_dm_attr memory = {};
  expect_error(EOPNOTSUPP, [&] { return ibv_alloc_dm(context_, &memory); });
  ibv_cq_init_attr_ex queue = {};
  queue.cqe = 1;
  queue.wc_flags = IBV_WC_EX_WITH_CVLAN;
  expect_error(EOPNOTSUPP, [&] { return ibv_create_cq_ex(context_, &queue); });
  expect_error(EOPNOTSUPP, [&] { return ibv_import_device(0); });
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

class Reregistration : public testing::Test {
 protected:
  ibv_wc_status write_to(void* address) {
    EXPECT_EQ(endpoint_.post_write(endpoint_.segment(0, 8), reinterpret_cast<std::uintptr_t>(address), region_->rkey),
              0);
    return endpoint_.wait_for_completion().status;
  }

  TwoHosts hosts_;
  VerbsEndpoint endpoint_{hosts_, "a"};
  char old_memory_[64] = {}, new_memory_[64] = {};
  ibv_mr* region_ = ibv_reg_mr(endpoint_.pd, old_memory_, sizeof(old_memory_), int{IBV_ACCESS_LOCAL_WRITE});
  ~Reregistration() override { EXPECT_EQ(ibv_dereg_mr(region_), 0); }
};

TEST_F(Reregistration, ChangesMemoryAndAccess) {
  connect_to_itself(endpoint_);
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(ibv_rereg_mr(region_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess), 0);
  EXPECT_EQ(write_to(old_memory_), IBV_WC_SUCCESS);
  const std::uint32_t key = region_->rkey;
  ASSERT_EQ(ibv_rereg_mr(region_, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_memory_, sizeof(new_memory_), 0), 0);
  EXPECT_EQ(region_->addr, new_memory_);
  EXPECT_EQ(region_->rkey, key);
  EXPECT_EQ(write_to(new_memory_), IBV_WC_SUCCESS);
  EXPECT_NE(write_to(old_memory_), IBV_WC_SUCCESS);
}

TEST_F(Reregistration, ChangesTheDomain) {
  ibv_pd* other = ibv_alloc_pd(endpoint_.context);
  ASSERT_EQ(ibv_rereg_mr(region_, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(region_->pd, other);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  ASSERT_EQ(ibv_rereg_mr(region_, IBV_REREG_MR_CHANGE_PD, endpoint_.pd, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Reregistration, KeepsTheRegionIfItFails) {
  const auto expect_refused = [&](int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(region_, flags, pd, address, length, access), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(region_->addr, old_memory_);
    EXPECT_EQ(region_->pd, endpoint_.pd);
  };
  expect_refused(0, nullptr, nullptr, 0, 0);
  expect_refused(8, nullptr, nullptr, 0, 0);
  expect_refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0);
  expect_refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0);
  expect_refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE);
}

TEST_F(Connected, MemoryThatHardwareCannotPinIsNotRegistered) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  LargeMapping memory(PROT_READ);
  void* const pages = memory.begin();
  expect_error(EFAULT, [&] { return ibv_reg_mr(a_.pd, pages, page, int{IBV_ACCESS_LOCAL_WRITE}); });
  ibv_mr* const region = ibv_reg_mr(a_.pd, pages, page, int{IBV_ACCESS_REMOTE_READ});
  ASSERT_NE(region, nullptr) << std::strerror(errno);
  memory.unmap_after(page);
  errno = 0;
  EXPECT_NE(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages, 2 * page, 0), 0);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(region->length, page);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  expect_error(EFAULT, [&] { return ibv_reg_mr(a_.pd, nullptr, page, 0); });
}

using DmabufRegions = Connected;

TEST_F(DmabufRegions, TellTheProbeOfProgramsThatTheyAreSupported) {
  expect_error(EBADF, [&] { return ibv_reg_dmabuf_mr(b_.pd, 0, 0, 0, -1, 0); });
}

TEST_F(DmabufRegions, StartAtThePositionOfTheFile) {
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  ASSERT_EQ(lseek(fd, 4096, SEEK_SET), 4096);
  expect_error(EINVAL, [&] { return ibv_reg_dmabuf_mr(b_.pd, 0, 8192, 0, fd, IBV_ACCESS_LOCAL_WRITE); });
  ibv_mr* region = ibv_reg_dmabuf_mr(b_.pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(region, nullptr) << std::strerror(errno);
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 4096);
  ASSERT_EQ(a_.post_write(a_.segment(0, 8), 0, region->rkey), 0);
  EXPECT_EQ(a_.wait_for_completion().status, IBV_WC_SUCCESS);
  char bytes[8] = {};
  EXPECT_EQ(pread(fd, bytes, sizeof(bytes), 4096), 8);
  EXPECT_EQ(std::memcmp(bytes, a_.memory.data(), sizeof(bytes)), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  close(fd);
}

TEST_F(DmabufRegions, StartAtTheOffset) {
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  constexpr std::uint64_t kOffset = 4096 + 100;
  constexpr std::uint64_t kIova = 0x1000;
  expect_error(EINVAL, [&] {
    return ibv_reg_dmabuf_mr(b_.pd, kOffset, 8192, kIova, fd, IBV_ACCESS_LOCAL_WRITE);
  });  // beyond the end of the file
  ibv_mr* region = ibv_reg_dmabuf_mr(b_.pd, kOffset, 1000, kIova, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(region, nullptr) << std::strerror(errno);
  std::strcpy(a_.memory.data(), "through the file");
  ASSERT_EQ(a_.post_write(a_.segment(0, 17), kIova + 10, region->rkey), 0);
  EXPECT_EQ(a_.wait_for_completion().status, IBV_WC_SUCCESS);
  char text[17] = {};
  EXPECT_EQ(pread(fd, text, sizeof(text), kOffset + 10), 17);
  EXPECT_STREQ(text, "through the file");
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  close(fd);
}

TEST_F(InvalidCalls, FailWithEinvalForInvalidNumbers) {
  expect_error(EINVAL, [&] { return ibv_create_cq(context_, 0, nullptr, nullptr, 0); });
  expect_error(EINVAL, [&] { return ibv_create_cq(context_, 1, nullptr, nullptr, context_->num_comp_vectors); });
}

TEST(QueuePairs, ReportTheirState) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  ASSERT_NE(endpoint.qp, nullptr);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr initial = {};
  ASSERT_EQ(ibv_query_qp(endpoint.qp, &attributes, IBV_QP_STATE, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(initial.send_cq, endpoint.cq);
  EXPECT_GE(initial.cap.max_send_wr, 16u);
  EXPECT_GT(endpoint.qp->qp_num, 0xffffu) << "a program that cuts the number to 16 bits must fail";
  ASSERT_EQ(endpoint.to_init(), 0);
  EXPECT_EQ(endpoint.qp->state, IBV_QPS_INIT);
  ASSERT_EQ(endpoint.to_rtr(endpoint.qp->qp_num, endpoint.gid()), 0);
  ASSERT_EQ(ibv_query_qp(endpoint.qp, &attributes, IBV_QP_STATE, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(attributes.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attributes.dest_qp_num, endpoint.qp->qp_num);
  EXPECT_EQ(attributes.rq_psn, 77u);
}

TEST(QueuePairs, RejectTransitionsThatSkipAState) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  EXPECT_EQ(endpoint.to_rts(), EINVAL);
}

TEST(ExtendedVerbs, PostInlineDataAndPollFieldWise) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a", {.extended_posting = true});
  VerbsEndpoint b(hosts, "b", {.extended_posting = true});
  ASSERT_NE(a.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  b.post_receive(1);
  b.post_receive(2);

  ibv_qp_ex* extended = ibv_qp_to_qp_ex(a.qp);
  ASSERT_NE(extended, nullptr);
  char text[] = "first half, second half";
  ibv_data_buf halves[] = {{text, 11}, {text + 11, sizeof(text) - 11}};
  ibv_wr_start(extended);
  extended->wr_id = 100;
  extended->wr_flags = 0;
  ibv_wr_rdma_write(extended, b.mr->rkey, b.address(2048));
  ibv_wr_set_inline_data_list(extended, 2, halves);
  extended->wr_id = 101;
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(extended);
  ibv_wr_set_sge(extended, a.mr->lkey, a.address(), 10);
  std::memset(text, 'x', sizeof(text));  // the library has copied the inline data
  ASSERT_EQ(ibv_wr_complete(extended), 0);

  ASSERT_EQ(b.start_poll(), 0);
  EXPECT_EQ(b.cq_ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.cq_ex->wr_id, 1u);
  EXPECT_EQ(ibv_wc_read_opcode(b.cq_ex), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(b.cq_ex), 10u);
  EXPECT_EQ(ibv_wc_read_qp_num(b.cq_ex), b.qp->qp_num);
  EXPECT_EQ(ibv_next_poll(b.cq_ex), ENOENT);
  ibv_end_poll(b.cq_ex);
  EXPECT_STREQ(b.memory.data() + 2048, "first half, second half");

  EXPECT_EQ(a.wait_for_completion().wr_id, 101u);  // the WRITE was not signaled
}

TEST(ExtendedVerbs, PostAllRequestsOrNone) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a", {.extended_posting = true});
  ASSERT_NE(endpoint.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect_to_itself(endpoint));
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(endpoint.qp);
  const auto add_write = [&](std::uint64_t id) {
    extended->wr_id = id;
    extended->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(extended, endpoint.mr->rkey, endpoint.address(2048));
  };
  ibv_wr_start(extended);
  add_write(1);
  ibv_wr_set_sge(extended, endpoint.mr->lkey, endpoint.address(), 10);
  add_write(2);
  std::vector<char> too_long(2000);
  ibv_wr_set_inline_data(extended, too_long.data(), too_long.size());
  EXPECT_EQ(ibv_wr_complete(extended), EINVAL);

  ibv_wr_start(extended);
  for (std::uint64_t id = 1; id <= 17; ++id) {  // one more than the queue holds
    add_write(id);
    ibv_wr_set_sge(extended, endpoint.mr->lkey, endpoint.address(), 10);
  }
  EXPECT_EQ(ibv_wr_complete(extended), ENOMEM);

  ibv_wr_start(extended);
  add_write(18);
  ibv_wr_set_sge(extended, endpoint.mr->lkey, endpoint.address(), 10);
  ASSERT_EQ(ibv_wr_complete(extended), 0);
  const ibv_wc completion = endpoint.wait_for_completion();
  EXPECT_EQ(completion.wr_id, 18u);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

TEST(ExtendedVerbs, AThreadThatPollsExcludesOthersUntilItEnds) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  ASSERT_NE(endpoint.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect_to_itself(endpoint));
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  for (request.wr_id = 1; request.wr_id <= 2; ++request.wr_id) ASSERT_EQ(endpoint.post(request), 0);
  ASSERT_EQ(endpoint.start_poll(), 0);
  std::atomic<pid_t> id = 0;
  std::atomic<std::uint64_t> taken = 0;
  std::thread other([&] {
    id = gettid();
    EXPECT_EQ(endpoint.start_poll(), 0);
    taken = endpoint.cq_ex->wr_id;
    ibv_end_poll(endpoint.cq_ex);
  });
  EXPECT_TRUE(wait_until([&] { return taken != 0 || is_in_call(id, SYS_futex); }));
  EXPECT_EQ(taken, 0u);
  EXPECT_EQ(endpoint.cq_ex->wr_id, 1u);
  ibv_end_poll(endpoint.cq_ex);
  other.join();
  EXPECT_EQ(taken, 2u);
}

std::uint64_t device_clock(ibv_context* context) {
  ibv_values_ex values = {};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(ibv_query_rt_values_ex(context, &values), 0);
  EXPECT_EQ(values.raw_clock.tv_sec, 0);
  return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

std::uint64_t wall_clock() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

TEST(ExtendedVerbs, StampCompletionsWithTheClockOfTheDeviceAndOfTheWall) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(
      hosts, "a",
      {.completion_fields = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
  ASSERT_NE(endpoint.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect_to_itself(endpoint));
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t device_before = device_clock(endpoint.context), wall_before = wall_clock();
    ASSERT_EQ(endpoint.post_write(endpoint.segment(0, 8), endpoint.address(64), endpoint.mr->rkey), 0);
    ASSERT_EQ(endpoint.start_poll(), 0);
    const std::uint64_t device_time = ibv_wc_read_completion_ts(endpoint.cq_ex);
    const std::uint64_t wall_time = ibv_wc_read_completion_wallclock_ns(endpoint.cq_ex);
    ibv_end_poll(endpoint.cq_ex);
    EXPECT_GT(device_time, device_before);
    EXPECT_LT(device_time, device_clock(endpoint.context));
    EXPECT_GT(wall_time, wall_before);
    EXPECT_LT(wall_time, wall_clock());
  }
}

TEST(ExtendedVerbs, HaveNoReaderOfATimestampThatWasNotRequested) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  EXPECT_EQ(endpoint.cq_ex->read_completion_ts, nullptr);
  EXPECT_EQ(endpoint.cq_ex->read_completion_wallclock_ns, nullptr);
  ibv_values_ex unknown = {};
  unknown.comp_mask = 2;
  EXPECT_EQ(ibv_query_rt_values_ex(endpoint.context, &unknown), EINVAL);
}

TEST(ExtendedVerbs, AcceptModerationOfEvents) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(endpoint.context, nullptr, &device), 0);
  ibv_modify_cq_attr attributes = {IBV_CQ_ATTR_MODERATE,
                                   {device.cq_mod_caps.max_cq_count, device.cq_mod_caps.max_cq_period}};
  EXPECT_EQ(ibv_modify_cq(endpoint.cq, &attributes), 0);
  attributes.attr_mask = IBV_CQ_ATTR_RESERVED;
  EXPECT_EQ(ibv_modify_cq(endpoint.cq, &attributes), EOPNOTSUPP);
}

TEST(ExtendedVerbs, NeedAQueuePairCreatedForThem) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  EXPECT_EQ(ibv_qp_to_qp_ex(endpoint.qp), nullptr);
}

}  // namespace
}  // namespace plugfest::roce::verbs
