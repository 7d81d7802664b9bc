// The calls for memory windows; roce/tests/memory_window_test.cc checks what windows do.
#include <gmock/gmock.h>

#include <cstdio>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

constexpr std::size_t kOffset = 512;
constexpr std::size_t kBytes = 256;

ibv_mw_bind_info bind_info(const VerbsEndpoint& endpoint) {
  return {endpoint.mr, endpoint.address(kOffset), kBytes, IBV_ACCESS_REMOTE_WRITE};
}

int post_bind(const VerbsEndpoint& endpoint, ibv_mw* window) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  request.bind_mw.bind_info = bind_info(endpoint);
  const int error = endpoint.post(request);
  if (error == 0) window->rkey = request.bind_mw.rkey;
  return error;
}

ibv_send_wr invalidation(ibv_wr_opcode opcode, std::uint32_t key) {
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.invalidate_rkey = key;
  return request;
}

ibv_wc_status write_with_key(VerbsEndpoint& from, const VerbsEndpoint& to, std::uint32_t key) {
  EXPECT_EQ(from.post_write(from.segment(0, 6), to.address(kOffset), key), 0);
  return from.wait_for_completion().status;
}

using ConnectedMemoryWindows = Connected;

TEST_F(ConnectedMemoryWindows, IbvBindMwBindsAWindowOfType1) {
  ibv_mw* window = ibv_alloc_mw(b_.pd, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr) << std::strerror(errno);
  const std::uint32_t before = window->rkey;
  ibv_mw_bind binding = {3, IBV_SEND_SIGNALED, bind_info(b_)};
  ASSERT_EQ(ibv_bind_mw(b_.qp, window, &binding), 0);
  EXPECT_NE(window->rkey, before);
  const ibv_wc bound = b_.wait_for_completion();
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.wr_id, 3u);
  EXPECT_EQ(write_with_key(a_, b_, window->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST(MemoryWindows, KeepTheirRegionAndProtectionDomainBusy) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  ASSERT_NO_FATAL_FAILURE(connect_to_itself(a));
  ibv_mw* window = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(window->type, IBV_MW_TYPE_2);
  EXPECT_EQ(window->pd, a.pd);
  EXPECT_EQ(window->context, a.context);
  ASSERT_EQ(post_bind(a, window), 0);
  ASSERT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(a.mr), EBUSY);
  ASSERT_EQ(a.post(invalidation(IBV_WR_LOCAL_INV, window->rkey)), 0);
  const ibv_wc invalidated = a.wait_for_completion();
  EXPECT_EQ(invalidated.status, IBV_WC_SUCCESS);
  EXPECT_EQ(invalidated.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);

  ibv_pd* pd = ibv_alloc_pd(a.context);
  window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(MemoryWindows, RejectInvalidTypes) {
  TwoHosts hosts;
  const VerbsEndpoint a(hosts, "a");
  for (const int type : {0, 3})
    expect_error(EINVAL, [&] { return ibv_alloc_mw(a.pd, static_cast<ibv_mw_type>(type)); });
}

TEST(MemoryWindows, WorkWithExtendedVerbs) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a", {.extended_posting = true});
  VerbsEndpoint b(hosts, "b", {.extended_posting = true});
  ASSERT_NE(b.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  ibv_mw* window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  ibv_qp_ex* of_b = ibv_qp_to_qp_ex(b.qp);
  const ibv_mw_bind_info binding = bind_info(b);
  const std::uint32_t first = ibv_inc_rkey(window->rkey);
  const std::uint32_t second = ibv_inc_rkey(first);
  ibv_wr_start(of_b);
  of_b->wr_flags = 0;
  of_b->wr_id = 1;
  ibv_wr_bind_mw(of_b, window, first, &binding);
  of_b->wr_id = 2;
  ibv_wr_local_inv(of_b, first);
  of_b->wr_flags = IBV_SEND_SIGNALED;
  of_b->wr_id = 3;
  ibv_wr_bind_mw(of_b, window, second, &binding);
  ASSERT_EQ(ibv_wr_complete(of_b), 0);
  const ibv_wc bound = b.wait_for_completion();
  EXPECT_EQ(bound.wr_id, 3u);
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(write_with_key(a, b, second), IBV_WC_SUCCESS);

  b.post_receive(4);
  ibv_qp_ex* of_a = ibv_qp_to_qp_ex(a.qp);
  ibv_wr_start(of_a);
  of_a->wr_flags = IBV_SEND_SIGNALED;
  of_a->wr_id = 5;
  ibv_wr_send_inv(of_a, second);
  ibv_wr_set_sge(of_a, a.mr->lkey, a.address(), 6);
  ASSERT_EQ(ibv_wr_complete(of_a), 0);
  ASSERT_EQ(b.start_poll(), 0);
  EXPECT_EQ(ibv_wc_read_wc_flags(b.cq_ex), static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(b.cq_ex), second);
  ibv_end_poll(b.cq_ex);
  EXPECT_EQ(a.wait_for_completion().wr_id, 5u);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

using SendWithInvalidate = Connected;

TEST_F(SendWithInvalidate, IsDissectedByWireshark) {
  PLUGFEST_NEEDS_PROGRAM("tshark");
  ibv_mw* window = ibv_alloc_mw(b_.pd, IBV_MW_TYPE_2);
  ASSERT_EQ(post_bind(b_, window), 0);
  ASSERT_EQ(b_.wait_for_completion().status, IBV_WC_SUCCESS);
  b_.post_receive(4);
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  BackgroundCapture capture(hosts_.fabric(), "a", file);
  ASSERT_EQ(a_.post(invalidation(IBV_WR_SEND_WITH_INV, window->rkey), a_.segment(0, 100)), 0);
  ASSERT_EQ(a_.wait_for_completion().status, IBV_WC_SUCCESS);
  ASSERT_GT(capture.stop(), 0u);
  char key[16] = {};
  std::snprintf(key, sizeof(key), "%08x\t", window->rkey);
  EXPECT_THAT(hosts_.dissect(file, {"-Y", "infiniband.bth.opcode == 0x17", "-T", "fields", "-e", "infiniband.ieth",
                                    "-e", "_ws.expert.message"}),
              testing::Contains(testing::EndsWith(key)));
  EXPECT_EQ(b_.wait_for_completion().invalidated_rkey, window->rkey);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

}  // namespace
}  // namespace plugfest::roce::verbs
