// XRC: one connection whose messages go to several shared receive queues.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"

namespace plugfest::roce::verbs {
namespace {

ibv_xrcd* open_domain(ibv_context* context) {
  ibv_xrcd_init_attr wanted = {};
  wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  wanted.fd = -1;
  wanted.oflags = O_CREAT;
  return ibv_open_xrcd(context, &wanted);
}

// A shared receive queue of an XRC domain. The protection domain may belong to an endpoint.
class SharedQueue {
 public:
  SharedQueue(ibv_context* context, ibv_xrcd* xrcd, ibv_pd* domain)
      : cq_(ibv_create_cq(context, 16, nullptr, nullptr, 0)) {
    ibv_srq_init_attr_ex wanted = {};
    wanted.attr = {16, 1, 0};
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD;
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.pd = domain;
    wanted.cq = cq_;
    wanted.xrcd = xrcd;
    srq_ = ibv_create_srq_ex(context, &wanted);
    EXPECT_NE(srq_, nullptr) << std::strerror(errno);
    EXPECT_EQ(ibv_get_srq_num(srq_, &number_), 0);
  }
  ~SharedQueue() {
    destroy();
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
  }
  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  void destroy() {
    if (srq_ != nullptr) EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    srq_ = nullptr;
  }
  std::uint32_t number() const { return number_; }

  void post_receive(ibv_sge segment) {
    ibv_recv_wr request = {1, nullptr, &segment, 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(srq_, &request, &bad), 0);
  }
  ibv_wc wait_for_completion() {
    ibv_wc completion = {};
    while (ibv_poll_cq(cq_, 1, &completion) == 0) continue;
    return completion;
  }

 private:
  ibv_cq* const cq_;
  ibv_srq* srq_ = nullptr;
  std::uint32_t number_ = 0;
};

// Sends from host a to host b.
class Extended : public testing::Test {
 protected:
  Extended() {
    for (VerbsEndpoint* const endpoint : {&a_, &b_}) EXPECT_EQ(ibv_destroy_qp(endpoint->qp), 0);
    hosts_.fabric().call("a", [&] {
      ibv_qp_init_attr wanted = {};
      wanted.send_cq = a_.cq;
      wanted.cap = {16, 0, 4, 0, 64};
      wanted.qp_type = IBV_QPT_XRC_SEND;
      a_.qp = ibv_create_qp(a_.pd, &wanted);
    });
    hosts_.fabric().call("b", [&] {
      ibv_qp_init_attr_ex wanted = {};
      wanted.qp_type = IBV_QPT_XRC_RECV;
      wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      wanted.xrcd = xrcd_;
      b_.qp = ibv_create_qp_ex(b_.context, &wanted);
    });
  }
  ~Extended() override {
    EXPECT_EQ(ibv_destroy_qp(b_.qp), 0);
    b_.qp = nullptr;
    first_.destroy();
    second_.destroy();
    EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
    EXPECT_EQ(ibv_dealloc_pd(other_domain_), 0);
  }
  void SetUp() override {
    ASSERT_NE(a_.qp, nullptr);
    ASSERT_NE(b_.qp, nullptr);
    ASSERT_NO_FATAL_FAILURE(connect(a_, b_));
  }

  ibv_wc_status run(ibv_wr_opcode opcode, std::uint32_t queue, std::uint32_t length) {
    ibv_send_wr request = {};
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.qp_type.xrc.remote_srqn = queue;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      request.wr.atomic = {b_.address(), 3, 0, b_.mr->rkey};
    else
      request.wr.rdma = {b_.address(), b_.mr->rkey};
    EXPECT_EQ(a_.post(request, a_.segment(0, length)), 0);
    return a_.wait_for_completion().status;
  }

  TwoHosts hosts_;
  VerbsEndpoint a_{hosts_, "a"}, b_{hosts_, "b"};
  ibv_xrcd* xrcd_ = open_domain(b_.context);
  ibv_pd* other_domain_ = ibv_alloc_pd(b_.context);
  SharedQueue first_{b_.context, xrcd_, b_.pd}, second_{b_.context, xrcd_, other_domain_};
};

TEST_F(Extended, SendsGoToTheQueueThatTheyName) {
  SharedQueue third(b_.context, xrcd_, b_.pd);
  first_.post_receive(b_.segment(0, 100));
  third.post_receive(b_.segment(1000, 3000));
  a_.memory[0] = 'x';
  EXPECT_EQ(run(IBV_WR_SEND, third.number(), 2500), IBV_WC_SUCCESS);
  const ibv_wc completion = third.wait_for_completion();
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.byte_len, 2500u);
  EXPECT_EQ(completion.qp_num, b_.qp->qp_num);
  EXPECT_EQ(b_.memory[1000], 'x');
  EXPECT_EQ(run(IBV_WR_RDMA_WRITE_WITH_IMM, first_.number(), 10), IBV_WC_SUCCESS);
  EXPECT_EQ(first_.wait_for_completion().opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

TEST_F(Extended, RequestsAccessTheMemoryOfTheirQueuesDomain) {
  b_.memory[0] = 40;
  EXPECT_EQ(run(IBV_WR_RDMA_READ, first_.number(), 2000), IBV_WC_SUCCESS);
  EXPECT_EQ(a_.memory[0], 40);
  EXPECT_EQ(run(IBV_WR_ATOMIC_FETCH_AND_ADD, first_.number(), 8), IBV_WC_SUCCESS);
  EXPECT_EQ(b_.memory[0], 43);
  EXPECT_EQ(run(IBV_WR_RDMA_WRITE, second_.number(), 10), IBV_WC_REM_ACCESS_ERR) << "memory of another domain";
}

TEST_F(Extended, RequestsForAnUnknownQueueFail) {
  const std::uint32_t number = first_.number();
  first_.destroy();
  EXPECT_EQ(run(IBV_WR_SEND, number, 10), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Extended, SendsWaitForAReceive) {
  std::thread late([&] {
    while (hosts_.counters("b").sent_rnr_naks == 0) std::this_thread::yield();
    first_.post_receive(b_.segment(0, 100));
  });
  EXPECT_EQ(run(IBV_WR_SEND, first_.number(), 10), IBV_WC_SUCCESS);
  late.join();
}

TEST_F(Extended, DomainsAreKeptWhileTheyAreUsed) {
  EXPECT_EQ(ibv_close_xrcd(xrcd_), EBUSY);
  ibv_send_wr request = {};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(b_.qp, &request, &bad_send), EINVAL) << "it only receives";
  ibv_recv_wr receive = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(a_.qp, &receive, &bad), EINVAL) << "it only sends";
  ibv_xrcd_init_attr incomplete = {};
  expect_error(EINVAL, [&] { return ibv_open_xrcd(a_.context, &incomplete); });
}

}  // namespace
}  // namespace plugfest::roce::verbs
