// For tests: a verbs program's objects on one host of a fabric, in the test's own process, and connections between two.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fabric/roce/verbs/testing/two_hosts.h"

namespace plugfest::roce {

/// Opens a device of a host.
inline ibv_context* open_in(TwoHosts& hosts, const std::string& host, const char* name = "roce_eth0") {
  ibv_context* opened = nullptr;
  hosts.fabric().call(host, [&] {
    ibv_device** list = ibv_get_device_list(nullptr);
    for (ibv_device** device = list; *device != nullptr; ++device)
      if (std::string(ibv_get_device_name(*device)) == name) opened = ibv_open_device(*device);
    ibv_free_device_list(list);
  });
  return opened;
}

/// One end of a connection: everything that a queue pair needs. Made on a thread inside its host, as a program there
/// would.
struct End {
  End(TwoHosts& fabric_hosts, std::string host_name, bool extended = false, bool with_channel = false)
      : hosts(fabric_hosts), host(std::move(host_name)), context(open_in(hosts, host)) {
    hosts.fabric().call(host, [&] { make(extended, with_channel); });
  }

  void make(bool extended, bool with_channel) {
    pd = ibv_alloc_pd(context);
    if (with_channel) channel = ibv_create_comp_channel(context);
    ibv_cq_init_attr_ex cq_attributes = {};
    cq_attributes.cqe = 64;
    cq_attributes.channel = channel;
    cq_attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    cq_ex = ibv_create_cq_ex(context, &cq_attributes);
    cq = ibv_cq_ex_to_cq(cq_ex);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
    ibv_qp_init_attr_ex attributes = {};
    attributes.send_cq = cq;
    attributes.recv_cq = cq;
    attributes.cap = {16, 16, 4, 4, 64};
    attributes.qp_type = IBV_QPT_RC;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = pd;
    if (extended) {
      attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
    }
    qp = ibv_create_qp_ex(context, &attributes);
    EXPECT_NE(qp, nullptr) << std::strerror(errno);
  }
  ~End() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    if (channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  int modify(ibv_qp_attr& attributes, int mask) {
    int result = 0;
    hosts.fabric().call(host, [&] { result = ibv_modify_qp(qp, &attributes, mask); });
    return result;
  }

  int to_init() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    return modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }

  int to_rtr(std::uint32_t peer, const ibv_gid& gid) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    attributes.rq_psn = 77;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = gid;
    attributes.ah_attr.grh.hop_limit = 64;
    return modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }

  int to_rts() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.sq_psn = 77;
    attributes.max_rd_atomic = 1;
    return ibv_modify_qp(
        qp, &attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  /// Up to the whole memory.
  void post_receive(std::uint64_t id) {
    ibv_sge segment = {reinterpret_cast<std::uintptr_t>(memory.data()), static_cast<std::uint32_t>(memory.size()),
                       mr->lkey};
    ibv_recv_wr request = {id, nullptr, &segment, 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &request, &bad), 0);
  }

  ibv_wc wait_for_completion() {
    ibv_wc completion = {};
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
    }
    return completion;
  }

  TwoHosts& hosts;
  const std::string host;
  std::vector<char> memory = std::vector<char>(4096);
  ibv_context* context;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq_ex* cq_ex = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
};

inline ibv_gid gid_of_end(TwoHosts& hosts, const End& end) {
  ibv_gid gid = {};
  hosts.fabric().call(end.host, [&] { EXPECT_EQ(ibv_query_gid(end.context, 1, 0, &gid), 0); });
  return gid;
}

inline void connect(TwoHosts& hosts, End& a, End& b) {
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.qp->qp_num, gid_of_end(hosts, b)), 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, gid_of_end(hosts, a)), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
}

}  // namespace plugfest::roce
