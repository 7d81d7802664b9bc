// Queue pair states, requests without data, and the extended posting and polling APIs.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>

#include "fabric/roce/verbs/testing/verbs_endpoint.h"

namespace plugfest::roce {
namespace {

TEST(QueuePairs, RejectAPathMtuAboveTheInterfaceMtu) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  ASSERT_EQ(endpoint.to_init(), 0);
  ASSERT_EQ(hosts.start("a", {"ip", "link", "set", "eth0", "mtu", "600"}).wait().exit_code, 0);
  ibv_port_attr port = {};
  hosts.fabric().call("a", [&] { EXPECT_EQ(ibv_query_port(endpoint.context, 1, &port), 0); });
  EXPECT_EQ(port.active_mtu, IBV_MTU_512);
  EXPECT_EQ(endpoint.to_rtr(1, endpoint.gid()), EINVAL);  // path MTU 1024
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

TEST(QueuePairs, WriteImmediateWithoutData) {
  TwoHosts hosts;
  VerbsEndpoint a(hosts, "a");
  VerbsEndpoint b(hosts, "b");
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  b.post_receive(5);
  ibv_send_wr request = {};
  request.wr_id = 9;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = 0x01020304;
  request.wr.rdma.remote_addr = b.address();
  request.wr.rdma.rkey = b.mr->rkey;
  ASSERT_EQ(a.post(request), 0);
  const ibv_wc received = b.wait_for_completion();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, 0x01020304u);
  EXPECT_EQ(received.byte_len, 0u);
  EXPECT_EQ(a.wait_for_completion().status, IBV_WC_SUCCESS);
}

TEST(QueuePairs, ConnectToThemselves) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  ASSERT_NO_FATAL_FAILURE(connect_to_itself(endpoint));
  std::strcpy(endpoint.memory.data(), "to myself");
  ASSERT_EQ(endpoint.post_write(endpoint.segment(0, 10), endpoint.address(100), endpoint.mr->rkey), 0);
  EXPECT_EQ(endpoint.wait_for_completion().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(endpoint.memory.data() + 100, "to myself");
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

  EXPECT_EQ(a.wait_for_completion().wr_id, 101u);  // the WRITE was not signaled
}

TEST(ExtendedVerbs, NeedAQueuePairCreatedForThem) {
  TwoHosts hosts;
  VerbsEndpoint endpoint(hosts, "a");
  EXPECT_EQ(ibv_qp_to_qp_ex(endpoint.qp), nullptr);
}

}  // namespace
}  // namespace plugfest::roce
