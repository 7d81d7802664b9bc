// Memory windows and SEND with invalidate as verbs programs use them, on both ends of a link.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "fabric/roce/verbs/testing/capture.h"
#include "fabric/roce/verbs/testing/end.h"
#include "fabric/system/testing/scratch_folder.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kOffset = 512;
constexpr std::size_t kBytes = 256;

std::uint64_t address_in(const End& end, std::size_t offset) {
  return reinterpret_cast<std::uintptr_t>(end.memory.data()) + offset;
}

ibv_mw_bind_info binding_of(const End& end) {
  return {end.mr, address_in(end, kOffset), kBytes, IBV_ACCESS_REMOTE_WRITE};
}

int post(End& end, ibv_send_wr request) {
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(end.qp, &request, &bad);
}

int post_bind(End& end, ibv_mw* window) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  request.bind_mw.bind_info = binding_of(end);
  const int error = post(end, request);
  if (error == 0) window->rkey = request.bind_mw.rkey;
  return error;
}

int post_invalidation(End& end, ibv_wr_opcode opcode, std::uint32_t key) {
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.invalidate_rkey = key;
  return post(end, request);
}

ibv_wc_status write_through(End& from, const End& to, std::uint32_t key) {
  ibv_sge segment = {address_in(from, 0), 6, from.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {address_in(to, kOffset), key};
  EXPECT_EQ(post(from, request), 0);
  return from.wait_for_completion().status;
}

TEST(Windows, AreBoundUsedAndTakenByAPeersSend) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ibv_mw* window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr) << std::strerror(errno);
  EXPECT_EQ(window->type, IBV_MW_TYPE_2);
  EXPECT_EQ(window->pd, b.pd);
  EXPECT_EQ(window->context, b.context);
  ASSERT_EQ(post_bind(b, window), 0);
  const ibv_wc bound = b.wait_for_completion();
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);

  std::strcpy(a.memory.data(), "hello");
  EXPECT_EQ(write_through(a, b, window->rkey), IBV_WC_SUCCESS);
  EXPECT_STREQ(b.memory.data() + kOffset, "hello");

  b.post_receive(4);
  ASSERT_EQ(post_invalidation(a, IBV_WR_SEND_WITH_INV, window->rkey), 0);
  EXPECT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
  const ibv_wc received = b.wait_for_completion();
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, window->rkey);
  EXPECT_EQ(write_through(a, b, window->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST(Windows, OfTypeOneAreBoundByTheirOwnVerb) {
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ibv_mw* window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr) << std::strerror(errno);
  const std::uint32_t before = window->rkey;
  ibv_mw_bind binding = {3, IBV_SEND_SIGNALED, binding_of(b)};
  ASSERT_EQ(ibv_bind_mw(b.qp, window, &binding), 0);
  EXPECT_NE(window->rkey, before);
  const ibv_wc bound = b.wait_for_completion();
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.wr_id, 3u);
  EXPECT_EQ(write_through(a, b, window->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST(Windows, KeepTheirRegionAndDomainBusy) {
  TwoHosts hosts;
  End a(hosts, "a");
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(a.to_rtr(a.qp->qp_num, gid_of_end(hosts, a)), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ibv_mw* window = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  ASSERT_EQ(post_bind(a, window), 0);
  ASSERT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(a.mr), EBUSY);
  ASSERT_EQ(post_invalidation(a, IBV_WR_LOCAL_INV, window->rkey), 0);
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

TEST(Windows, HaveOneOfTwoTypes) {
  TwoHosts hosts;
  const End a(hosts, "a");
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(a.pd, static_cast<ibv_mw_type>(0)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Windows, AreInTheDevicesAttributes) {
  TwoHosts hosts;
  const End a(hosts, "a");
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(a.context, &device), 0);
  EXPECT_GT(device.max_mw, 0);
  constexpr unsigned kFlags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  EXPECT_EQ(device.device_cap_flags & (kFlags | IBV_DEVICE_MEM_WINDOW_TYPE_2A), kFlags);
}

TEST(Windows, AreBoundAndTakenByExtendedVerbs) {
  TwoHosts hosts;
  End a(hosts, "a", true);
  End b(hosts, "b", true);
  ASSERT_NE(b.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ibv_mw* window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  ibv_qp_ex* of_b = ibv_qp_to_qp_ex(b.qp);
  const ibv_mw_bind_info binding = binding_of(b);
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
  EXPECT_EQ(write_through(a, b, second), IBV_WC_SUCCESS);

  b.post_receive(4);
  ibv_qp_ex* of_a = ibv_qp_to_qp_ex(a.qp);
  ibv_wr_start(of_a);
  of_a->wr_flags = IBV_SEND_SIGNALED;
  of_a->wr_id = 5;
  ibv_wr_send_inv(of_a, second);
  ibv_wr_set_sge(of_a, a.mr->lkey, address_in(a, 0), 6);
  ASSERT_EQ(ibv_wr_complete(of_a), 0);
  ibv_poll_cq_attr none = {};
  int result;
  while ((result = ibv_start_poll(b.cq_ex, &none)) == ENOENT) {
  }
  ASSERT_EQ(result, 0);
  EXPECT_EQ(ibv_wc_read_wc_flags(b.cq_ex), static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(b.cq_ex), second);
  ibv_end_poll(b.cq_ex);
  EXPECT_EQ(a.wait_for_completion().wr_id, 5u);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

// The key as Wireshark shows it, and nothing that it complains about.
TEST(SendWithInvalidate, IsDissectedByWireshark) {
  PLUGFEST_NEEDS_PROGRAM("tshark");
  TwoHosts hosts;
  End a(hosts, "a");
  End b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(hosts, a, b));
  ibv_mw* window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ASSERT_EQ(post_bind(b, window), 0);
  ASSERT_EQ(b.wait_for_completion().status, IBV_WC_SUCCESS);
  b.post_receive(4);
  Capture capture(hosts.fabric(), "a", "eth0");
  ibv_sge segment = {address_in(a, 0), 100, a.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.invalidate_rkey = window->rkey;
  ASSERT_EQ(post(a, request), 0);
  ASSERT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  ASSERT_GT(capture.stop(file), 0u);
  const netns::Finished dissected =
      hosts
          .start("a", {"tshark", "-n", "-r", file.string(), "-Y", "infiniband.bth.opcode == 0x17", "-T", "fields", "-e",
                       "infiniband.ieth", "-e", "_ws.expert.message"})
          .wait();
  EXPECT_EQ(dissected.exit_code, 0) << dissected.output;
  char key[16] = {};
  std::snprintf(key, sizeof(key), "%08x\t\n", window->rkey);
  EXPECT_NE(dissected.output.find(key), std::string::npos) << dissected.output;
  EXPECT_EQ(b.wait_for_completion().invalidated_rkey, window->rkey);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

}  // namespace
}  // namespace plugfest::roce
