#include "fabric/rxe/verbs_connection.h"

namespace plugfest::rxe {
namespace {

constexpr std::uint32_t kPsn = 0xfffff0;  // wraps to 0 after 16 packets

}  // namespace

VerbsConnection::VerbsConnection(const ConnectionOptions& options)
    : type_(options.type), memory_(kMemoryBytes), channel_(options.address) {
  open(options.device);
  domain_ = ibv_alloc_pd(context_);
  completions_ = ibv_create_cq(context_, 128, nullptr, nullptr, 0);
  constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(), kAccess | IBV_ACCESS_MW_BIND);
  require(region_ != nullptr && completions_ != nullptr, "cannot create a memory region or completion queue");
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = type_;
  attributes.send_cq = attributes.recv_cq = completions_;
  attributes.cap = {.max_send_wr = 64, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  queue_pair_ = ibv_create_qp(domain_, &attributes);
  require(queue_pair_ != nullptr, "cannot create a queue pair");
  Endpoint own = {{}, queue_pair_->qp_num, region_->rkey, reinterpret_cast<std::uint64_t>(memory_.data())};
  require(ibv_query_gid(context_, 1, options.gid_index, &own.gid) == 0, "cannot query the GID");
  channel_.send_value(own);
  peer_ = channel_.receive_value<Endpoint>();
  connect(options.gid_index, kAccess);
  channel_.synchronize();
}

VerbsConnection::~VerbsConnection() {
  if (address_handle_ != nullptr) ibv_destroy_ah(address_handle_);
  ibv_destroy_qp(queue_pair_);
  ibv_dereg_mr(region_);
  ibv_destroy_cq(completions_);
  ibv_dealloc_pd(domain_);
  ibv_close_device(context_);
}

void VerbsConnection::open(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (name == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  require(context_ != nullptr, "no device " + name);
}

void VerbsConnection::modify(ibv_qp_attr& attributes, int mask) {
  require(ibv_modify_qp(queue_pair_, &attributes, mask) == 0, "cannot connect the queue pair");
}

void VerbsConnection::connect(int gid_index, int access) {
  ibv_ah_attr path = {};
  path.is_global = 1;
  path.port_num = 1;
  path.grh.dgid = peer_.gid;
  path.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  path.grh.hop_limit = 64;
  const bool reliable = type_ == IBV_QPT_RC;
  const bool datagram = type_ == IBV_QPT_UD;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = kQKey;
  attributes.qp_access_flags = static_cast<unsigned>(access);
  modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer_.number;
  attributes.rq_psn = kPsn;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = path;
  const int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  modify(attributes,
         IBV_QP_STATE | (datagram ? 0 : connected) | (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = kPsn;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 4;
  modify(attributes,
         IBV_QP_STATE | IBV_QP_SQ_PSN |
             (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
  if (!datagram) return;
  address_handle_ = ibv_create_ah(domain_, &path);
  require(address_handle_ != nullptr, "cannot create an address handle");
}

void VerbsConnection::post_receive(std::size_t offset, std::uint32_t length) {
  ibv_sge segment = {reinterpret_cast<std::uint64_t>(memory_.data() + offset), length, region_->lkey};
  ibv_recv_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  require(ibv_post_recv(queue_pair_, &request, &bad) == 0, "cannot post a receive request");
}

void VerbsConnection::post(ibv_send_wr request, std::size_t offset, std::uint32_t length) {
  ibv_sge segment = {reinterpret_cast<std::uint64_t>(memory_.data() + offset), length, region_->lkey};
  request.sg_list = &segment;
  request.num_sge = 1;
  post(request);
}

void VerbsConnection::post(ibv_send_wr request) {
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  require(ibv_post_send(queue_pair_, &request, &bad) == 0, "cannot post a send request");
}

ibv_wc VerbsConnection::wait_for_completion(const std::string& name) {
  ibv_wc completion = {};
  int count = 0;
  while (count == 0) count = ibv_poll_cq(completions_, 1, &completion);
  require(count == 1, name + ": polling the completion queue failed");
  require(completion.status == IBV_WC_SUCCESS, name + ": " + ibv_wc_status_str(completion.status));
  return completion;
}

}  // namespace plugfest::rxe
