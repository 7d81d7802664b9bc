// Verbs objects on a host of a fabric, in the process of the test.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/roce/verbs/tests/two_hosts.h"

namespace plugfest::roce::verbs {

/// Opens a device of a host; null if it does not exist.
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

/// Whether a thread of this process is blocked in a system call.
inline bool is_in_call(pid_t thread, long call) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && number == call;
}

/// Expects that a call which creates an object returns null and sets errno to `error`.
template <typename Create>
void expect_error(int error, const Create& create) {
  errno = 0;
  EXPECT_EQ(create(), nullptr);
  EXPECT_EQ(errno, error) << std::strerror(errno);
}

struct VerbsEndpointOptions {
  bool extended_posting = false;    ///< queue pair for ibv_wr_*
  bool completion_channel = false;  ///< completion queue with a channel
  std::uint64_t completion_fields = IBV_WC_STANDARD_FLAGS;
};

/// An RC queue pair with its own context, protection domain, completion queue and memory region. Creates and modifies
/// its objects on a thread inside the host.
struct VerbsEndpoint {
  VerbsEndpoint(TwoHosts& fabric_hosts, std::string host_name, VerbsEndpointOptions options = {})
      : hosts(fabric_hosts), host(std::move(host_name)), context(open_in(hosts, host)) {
    hosts.fabric().call(host, [&] { create(options); });
  }

  void create(VerbsEndpointOptions options) {
    pd = ibv_alloc_pd(context);
    if (options.completion_channel) channel = ibv_create_comp_channel(context);
    ibv_cq_init_attr_ex cq_attributes = {};
    cq_attributes.cqe = 64;
    cq_attributes.channel = channel;
    cq_attributes.wc_flags = options.completion_fields;
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
    if (options.extended_posting) {
      attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
    }
    qp = ibv_create_qp_ex(context, &attributes);
    EXPECT_NE(qp, nullptr) << std::strerror(errno);
  }
  ~VerbsEndpoint() {
    EXPECT_TRUE(qp == nullptr || ibv_destroy_qp(qp) == 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_TRUE(channel == nullptr || ibv_destroy_comp_channel(channel) == 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;

  ibv_gid gid() const {
    ibv_gid gid = {};
    hosts.fabric().call(host, [&] { EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0); });
    return gid;
  }

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

  int to_rtr(std::uint32_t peer, const ibv_gid& gid, ibv_mtu path_mtu = IBV_MTU_1024, int reads_in_flight = 1) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = path_mtu;
    attributes.dest_qp_num = peer;
    attributes.rq_psn = 77;
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(reads_in_flight);
    attributes.min_rnr_timer = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = gid;
    attributes.ah_attr.grh.hop_limit = 64;
    return modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }

  int to_rts(int reads_in_flight = 1) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.sq_psn = 77;
    attributes.max_rd_atomic = static_cast<std::uint8_t>(reads_in_flight);
    return ibv_modify_qp(
        qp, &attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
  ibv_sge segment(std::size_t offset, std::uint32_t length) const { return {address(offset), length, mr->lkey}; }

  /// Posts one request with one segment, or without data if `segment.length` is 0. Returns the result of ibv_post_send.
  int post(ibv_send_wr request, ibv_sge segment = {}) const {
    request.sg_list = &segment;
    request.num_sge = segment.length > 0 ? 1 : 0;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }

  /// Posts a signaled WRITE of `source` to `remote_address`.
  int post_write(ibv_sge source, std::uint64_t remote_address, std::uint32_t rkey) const {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {remote_address, rkey};
    return post(request, source);
  }

  /// Posts a receive of up to the whole memory.
  void post_receive(std::uint64_t id) {
    ibv_sge all = segment(0, static_cast<std::uint32_t>(memory.size()));
    ibv_recv_wr request = {id, nullptr, &all, 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &request, &bad), 0);
  }

  /// Waits for a completion with ibv_start_poll(), and returns its result.
  int start_poll() {
    ibv_poll_cq_attr none = {};
    int result = ENOENT;
    while (result == ENOENT) result = ibv_start_poll(cq_ex, &none);
    return result;
  }

  ibv_wc wait_for_completion() {
    ibv_wc completion = {};
    while (ibv_poll_cq(cq, 1, &completion) == 0) continue;
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

inline void connect(VerbsEndpoint& a, VerbsEndpoint& b) {
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid()), 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid()), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
}

/// A test with connected endpoints a and b on the hosts of these names.
class Connected : public testing::Test {
 protected:
  explicit Connected(VerbsEndpointOptions of_a = {}, VerbsEndpointOptions of_b = {})
      : a_(hosts_, "a", of_a), b_(hosts_, "b", of_b) {}
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(connect(a_, b_)); }

  TwoHosts hosts_;
  VerbsEndpoint a_;
  VerbsEndpoint b_;
};

/// A test with an open device of host a.
class OpenDevice : public testing::Test {
 protected:
  ~OpenDevice() override { EXPECT_TRUE(context_ == nullptr || ibv_close_device(context_) == 0); }
  /// Waits for an asynchronous event.
  ibv_async_event next_event() {
    ibv_async_event event = {};
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event;
  }

  TwoHosts hosts_;
  ibv_context* context_ = open_in(hosts_, "a");
};

/// Connects a queue pair to itself.
inline void connect_to_itself(VerbsEndpoint& endpoint) {
  ASSERT_EQ(endpoint.to_init(), 0);
  ASSERT_EQ(endpoint.to_rtr(endpoint.qp->qp_num, endpoint.gid()), 0);
  ASSERT_EQ(endpoint.to_rts(), 0);
}

/// Writes `number` to the peer's memory and checks that it has arrived. Returns the status of the completion.
inline ibv_wc_status write_number(VerbsEndpoint& from, VerbsEndpoint& to, std::uint32_t number) {
  constexpr std::size_t kOffset = 64;
  std::memcpy(from.memory.data(), &number, sizeof(number));
  EXPECT_EQ(from.post_write(from.segment(0, sizeof(number)), to.address(kOffset), to.mr->rkey), 0);
  const ibv_wc_status status = from.wait_for_completion().status;
  std::uint32_t arrived = 0;
  std::memcpy(&arrived, to.memory.data() + kOffset, sizeof(arrived));
  EXPECT_TRUE(status != IBV_WC_SUCCESS || arrived == number) << arrived;
  return status;
}

/// Calls write_number() repeatedly on a thread until destruction or until the test fails.
class BackgroundWrites {
 public:
  BackgroundWrites(VerbsEndpoint& from, VerbsEndpoint& to)
      : thread_([this, &from, &to] {
          while (!stop_ && !testing::Test::HasFailure()) {
            EXPECT_EQ(write_number(from, to, writes_), IBV_WC_SUCCESS);
            ++writes_;
          }
        }) {}
  ~BackgroundWrites() {
    stop_ = true;
    thread_.join();
  }
  BackgroundWrites(const BackgroundWrites&) = delete;
  BackgroundWrites& operator=(const BackgroundWrites&) = delete;

  /// Returns when at least one write has started and completed after the call.
  void wait_for_progress() const {
    const std::uint32_t before = writes_;
    while (writes_ < before + 2 && !testing::Test::HasFailure()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> writes_{0};
  std::thread thread_;
};

}  // namespace plugfest::roce::verbs
