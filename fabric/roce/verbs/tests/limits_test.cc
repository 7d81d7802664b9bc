// Device and port attributes: each limit can be reached, and exceeding it fails with the documented errno.
#include <functional>

#include "fabric/roce/verbs/tests/verbs_endpoint.h"

namespace plugfest::roce::verbs {
namespace {

ibv_device_attr attributes_of(ibv_context* context) {
  ibv_device_attr device = {};
  EXPECT_EQ(ibv_query_device(context, &device), 0);
  return device;
}

// Creates objects until creation fails. `before`: number of objects that exist already.
template <typename Object>
void expect_limit(int limit, std::size_t before, const std::function<Object*()>& create, int (*destroy)(Object*)) {
  ASSERT_GT(limit, 0);
  std::vector<Object*> objects;
  const std::size_t expected = static_cast<std::size_t>(limit) - before;
  while (objects.size() < expected) {
    Object* const object = create();
    if (object == nullptr) break;
    objects.push_back(object);
  }
  EXPECT_EQ(objects.size(), expected) << std::strerror(errno);
  expect_error(ENOMEM, [&] { return create(); });
  if (!objects.empty()) {
    EXPECT_EQ(destroy(objects.back()), 0);
    objects.back() = create();  // after a destruction, creation works again
    EXPECT_NE(objects.back(), nullptr);
  }
  for (Object* const object : objects) ASSERT_EQ(destroy(object), 0);
}

// The endpoint has one protection domain, memory region, completion queue and queue pair.
class Limits : public testing::Test {
 protected:
  TwoHosts hosts_;
  VerbsEndpoint endpoint_{hosts_, "a"};
  const ibv_device_attr device_ = attributes_of(endpoint_.context);
  char memory_[8] = {};

  ibv_qp_init_attr qp_attributes() const {
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = endpoint_.cq;
    attributes.cap = {1, 1, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    return attributes;
  }
  int error_of_qp(const std::function<void(ibv_qp_init_attr&)>& change) const {
    ibv_qp_init_attr attributes = qp_attributes();
    change(attributes);
    errno = 0;
    ibv_qp* created = ibv_create_qp(endpoint_.pd, &attributes);
    if (created == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_qp(created), 0);
    return 0;
  }
  int error_of_srq(std::uint32_t requests, std::uint32_t segments) const {
    ibv_srq_init_attr attributes = {nullptr, {requests, segments, 0}};
    errno = 0;
    ibv_srq* created = ibv_create_srq(endpoint_.pd, &attributes);
    if (created == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_srq(created), 0);
    return 0;
  }
};

TEST_F(Limits, HoldForProtectionDomains) {
  expect_limit<ibv_pd>(
      device_.max_pd, 1, [&] { return ibv_alloc_pd(endpoint_.context); }, ibv_dealloc_pd);
}

TEST_F(Limits, HoldForMemoryRegions) {
  expect_limit<ibv_mr>(
      device_.max_mr, 1, [&] { return ibv_reg_mr(endpoint_.pd, memory_, sizeof(memory_), 0); }, ibv_dereg_mr);
}

TEST_F(Limits, HoldForMemoryWindows) {
  expect_limit<ibv_mw>(
      device_.max_mw, 0, [&] { return ibv_alloc_mw(endpoint_.pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw);
}

TEST_F(Limits, HoldForCompletionQueues) {
  expect_limit<ibv_cq>(
      device_.max_cq, 1, [&] { return ibv_create_cq(endpoint_.context, 1, nullptr, nullptr, 0); }, ibv_destroy_cq);
}

TEST_F(Limits, HoldForQueuePairs) {
  expect_limit<ibv_qp>(
      device_.max_qp, 1,
      [&] {
        ibv_qp_init_attr attributes = qp_attributes();
        return ibv_create_qp(endpoint_.pd, &attributes);
      },
      ibv_destroy_qp);
}

TEST_F(Limits, HoldForSharedReceiveQueues) {
  expect_limit<ibv_srq>(
      device_.max_srq, 0,
      [&] {
        ibv_srq_init_attr attributes = {nullptr, {1, 1, 0}};
        return ibv_create_srq(endpoint_.pd, &attributes);
      },
      ibv_destroy_srq);
}

TEST_F(Limits, HoldForAddressHandles) {
  ibv_ah_attr attributes = {};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = endpoint_.gid();
  expect_limit<ibv_ah>(
      device_.max_ah, 0, [&] { return ibv_create_ah(endpoint_.pd, &attributes); }, ibv_destroy_ah);
}

TEST_F(Limits, HoldForWorkRequestsOfAQueue) {
  const auto limit = static_cast<std::uint32_t>(device_.max_qp_wr);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_send_wr = attributes.cap.max_recv_wr = limit; }), 0);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_send_wr = limit + 1; }), EINVAL);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_recv_wr = limit + 1; }), EINVAL);
}

TEST_F(Limits, HoldForSegmentsOfARequest) {
  const auto limit = static_cast<std::uint32_t>(device_.max_sge);
  EXPECT_EQ(device_.max_sge_rd, device_.max_sge);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_send_sge = attributes.cap.max_recv_sge = limit; }),
            0);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_send_sge = limit + 1; }), EINVAL);
  EXPECT_EQ(error_of_qp([&](auto& attributes) { attributes.cap.max_recv_sge = limit + 1; }), EINVAL);
}

TEST_F(Limits, HoldForSharedReceives) {
  const auto requests = static_cast<std::uint32_t>(device_.max_srq_wr);
  const auto segments = static_cast<std::uint32_t>(device_.max_srq_sge);
  EXPECT_EQ(error_of_srq(requests, segments), 0);
  EXPECT_EQ(error_of_srq(requests + 1, 1), EINVAL);
  EXPECT_EQ(error_of_srq(1, segments + 1), EINVAL);
}

TEST_F(Limits, HoldForCompletionsOfAQueue) {
  ibv_cq* queue = ibv_create_cq(endpoint_.context, device_.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(queue, nullptr) << std::strerror(errno);
  EXPECT_GE(queue->cqe, device_.max_cqe);
  EXPECT_EQ(ibv_resize_cq(queue, device_.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(queue), 0);
  expect_error(EINVAL, [&] { return ibv_create_cq(endpoint_.context, device_.max_cqe + 1, nullptr, nullptr, 0); });
}

// Connects a queue pair to itself with the given max_dest_rd_atomic and max_rd_atomic. Returns the first error.
int connect_with(VerbsEndpoint& endpoint, const ibv_gid& gid, int as_responder, int as_requester,
                 ibv_mtu path_mtu = IBV_MTU_1024) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(endpoint.modify(attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(endpoint.to_init(), 0);
  const int error = endpoint.to_rtr(endpoint.qp->qp_num, gid, path_mtu, as_responder);
  return error != 0 ? error : endpoint.to_rts(as_requester);
}

TEST_F(Limits, HoldForReadsInFlight) {
  const ibv_gid gid = endpoint_.gid();
  EXPECT_EQ(device_.max_res_rd_atom, device_.max_qp_rd_atom * device_.max_qp);
  EXPECT_EQ(connect_with(endpoint_, gid, device_.max_qp_rd_atom, device_.max_qp_init_rd_atom), 0);
  EXPECT_EQ(connect_with(endpoint_, gid, device_.max_qp_rd_atom + 1, 1), EINVAL);
  EXPECT_EQ(connect_with(endpoint_, gid, 1, device_.max_qp_init_rd_atom + 1), EINVAL);
}

TEST_F(Limits, HoldForThePathMtu) {
  const ibv_gid gid = endpoint_.gid();
  ibv_port_attr port = {};
  ASSERT_EQ(ibv_query_port(endpoint_.context, 1, &port), 0);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  ASSERT_EQ(hosts_.start("a", {"ip", "link", "set", "eth0", "mtu", "1500"}).wait().exit_code, 0);
  hosts_.fabric().call("a", [&] { EXPECT_EQ(ibv_query_port(endpoint_.context, 1, &port), 0); });
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(connect_with(endpoint_, gid, 1, 1, port.active_mtu), 0);
  EXPECT_EQ(connect_with(endpoint_, gid, 1, 1, static_cast<ibv_mtu>(port.active_mtu + 1)), EINVAL);
}

TEST_F(Limits, HoldForTheLengthOfAMessage) {
  ibv_port_attr port = {};
  ASSERT_EQ(ibv_query_port(endpoint_.context, 1, &port), 0);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;  // accepts and flushes requests
  ASSERT_EQ(endpoint_.modify(attributes, IBV_QP_STATE), 0);
  ibv_sge segment = {0, port.max_msg_sz, endpoint_.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(endpoint_.qp, &request, &bad), 0);
  EXPECT_EQ(endpoint_.wait_for_completion().status, IBV_WC_WR_FLUSH_ERR);
  ++segment.length;
  EXPECT_EQ(ibv_post_send(endpoint_.qp, &request, &bad), EINVAL);
}

// Registers address space; accesses no memory.
TEST_F(Limits, AllowARegionOfAnyMappedLength) {
  EXPECT_EQ(device_.max_mr_size, UINT64_MAX);
  // No size is refused as such, but the memory must be mapped.
  expect_error(EFAULT, [&] {
    return ibv_reg_mr(endpoint_.pd, memory_, UINT64_MAX - reinterpret_cast<std::uintptr_t>(memory_), 0);
  });
  expect_error(EINVAL, [&] { return ibv_reg_mr(endpoint_.pd, memory_, UINT64_MAX, 0); });
}

TEST_F(Limits, PostingBeyondTheQueueSizeFailsWithEnomem) {
  ibv_qp_attr now = {};
  ibv_qp_init_attr granted = {};
  ASSERT_EQ(endpoint_.to_init(), 0);
  ASSERT_EQ(ibv_query_qp(endpoint_.qp, &now, IBV_QP_CAP, &granted), 0);
  ibv_recv_wr request = {};
  ibv_recv_wr* bad = nullptr;
  for (std::uint32_t i = 0; i < granted.cap.max_recv_wr; ++i) ASSERT_EQ(ibv_post_recv(endpoint_.qp, &request, &bad), 0);
  EXPECT_EQ(ibv_post_recv(endpoint_.qp, &request, &bad), ENOMEM);
  EXPECT_EQ(bad, &request);
}

TEST_F(Limits, VendorIsNotThatOfADeviceWithADriver) {
  EXPECT_EQ(device_.vendor_id, 0xffffffu);
  EXPECT_NE(device_.vendor_part_id, 0u);
}

TEST_F(Limits, CapabilityFlagsMatchTheBehavior) {
  constexpr unsigned kFlags = IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_CURR_QP_STATE_MOD |
                              IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                              IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                              IBV_DEVICE_XRC;
  EXPECT_EQ(device_.device_cap_flags, kFlags);
  // UD_AV_PORT_ENFORCE
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 2;
  expect_error(EINVAL, [&] { return ibv_create_ah(endpoint_.pd, &address); });
  // CURR_QP_STATE_MOD
  ASSERT_EQ(endpoint_.to_init(), 0);
  ibv_qp_attr attributes = {};
  attributes.qp_state = attributes.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(endpoint_.modify(attributes, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
  attributes.cur_qp_state = IBV_QPS_RTR;
  EXPECT_EQ(endpoint_.modify(attributes, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
  // no SRQ_RESIZE
  ibv_srq_init_attr shared = {nullptr, {1, 1, 0}};
  ibv_srq* receives = ibv_create_srq(endpoint_.pd, &shared);
  ibv_srq_attr larger = {2, 1, 0};
  EXPECT_EQ(ibv_modify_srq(receives, &larger, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_srq(receives), 0);
}

TEST_F(Limits, UnsupportedObjectsHaveLimitZeroAndFail) {
  EXPECT_EQ(device_.max_ee, 0);
  EXPECT_EQ(device_.max_rdd, 0);
  EXPECT_EQ(device_.max_fmr, 0);
  EXPECT_EQ(device_.max_raw_ethy_qp, 0);
  // The last one is the type of DC (mlx5) and SRD (EFA).
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER})
    EXPECT_EQ(error_of_qp([type](auto& attributes) { attributes.qp_type = type; }), EOPNOTSUPP) << type;
}

TEST_F(Limits, ExtendedAttributesMatchAndReportNoOtherFeature) {
  ibv_device_attr_ex extended = {};
  ASSERT_EQ(ibv_query_device_ex(endpoint_.context, nullptr, &extended), 0);
  EXPECT_EQ(std::memcmp(&extended.orig_attr, &device_, sizeof(device_)), 0);
  EXPECT_EQ(extended.device_cap_flags_ex, device_.device_cap_flags);
  EXPECT_EQ(extended.phys_port_cnt_ex, 1u);
  EXPECT_EQ(extended.comp_mask, 0u);
  EXPECT_EQ(extended.odp_caps.general_caps, 0u);
  EXPECT_EQ(extended.completion_timestamp_mask, UINT64_MAX);
  EXPECT_EQ(extended.hca_core_clock, 1'000'000u);
  EXPECT_EQ(extended.tso_caps.max_tso, 0u);
  EXPECT_EQ(extended.rss_caps.supported_qpts, 0u);
  EXPECT_EQ(extended.max_wq_type_rq, 0u);
  EXPECT_EQ(extended.max_dm_size, 0u);
  ibv_query_device_ex_input unknown = {1};
  EXPECT_EQ(ibv_query_device_ex(endpoint_.context, &unknown, &extended), EINVAL);
}

TEST_F(Limits, PortAttributesAreCorrect) {
  ibv_port_attr port = {};
  hosts_.fabric().call("a", [&] { EXPECT_EQ(ibv_query_port(endpoint_.context, 1, &port), 0); });
  EXPECT_EQ(device_.phys_port_cnt, 1);
  EXPECT_EQ(ibv_query_port(endpoint_.context, 0, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(endpoint_.context, 2, &port), EINVAL);
  EXPECT_EQ(port.port_cap_flags, static_cast<std::uint32_t>(IBV_PORT_IP_BASED_GIDS));
  EXPECT_EQ(port.pkey_tbl_len, device_.max_pkeys);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
  EXPECT_EQ(port.phys_state, 5);
  EXPECT_EQ(port.lid, 0);
  EXPECT_EQ(port.qkey_viol_cntr, 0u);
}

// IBV_DEVICE_BAD_QKEY_CNTR
TEST_F(Limits, DatagramsWithAWrongQKeyAreCounted) {
  ibv_qp_init_attr init = qp_attributes();
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(endpoint_.pd, &init);
  ASSERT_NE(qp, nullptr) << std::strerror(errno);
  ibv_qp_attr attributes = {};
  attributes.port_num = 1;
  attributes.qkey = 5;
  attributes.qp_state = IBV_QPS_INIT;
  ibv_ah_attr to_itself = {};
  to_itself.is_global = 1;
  to_itself.port_num = 1;
  to_itself.grh.dgid = endpoint_.gid();
  ibv_ah* handle = nullptr;
  hosts_.fabric().call("a", [&] {
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attributes.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    attributes.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    handle = ibv_create_ah(endpoint_.pd, &to_itself);
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {handle, qp->qp_num, 6};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &request, &bad), 0);
    ibv_port_attr port = {};
    while (port.qkey_viol_cntr == 0) ASSERT_EQ(ibv_query_port(endpoint_.context, 1, &port), 0);
    EXPECT_EQ(port.qkey_viol_cntr, 1u);
  });
  EXPECT_EQ(ibv_destroy_ah(handle), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

}  // namespace
}  // namespace plugfest::roce::verbs
