#include "fabric/rdma_cm/identifier.h"

#include <infiniband/verbs.h>

#include <algorithm>

#include "fabric/rdma_cm/error.h"

namespace plugfest::rdma_cm {
namespace {

void fill_init(const Identifier& identifier, ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  attributes.port_num = identifier.route.device->port;
  if (identifier.is_datagram()) {
    attributes.qp_attr_mask |= IBV_QP_QKEY;
    attributes.qkey = kDatagramQkey;
    return;
  }
  attributes.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
  if (identifier.state < State::kConnecting) return;  // before rdma_connect() or a request there are no access flags
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (identifier.qp_type == IBV_QPT_RC) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
}

void fill_ready_to_receive(const Identifier& identifier, ib_uverbs_qp_attr& attributes) {
  const Message& peer = identifier.connection.peer;
  attributes.qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  attributes.ah_attr = address_vector(identifier, identifier.route.remote.address);
  attributes.path_mtu = std::min(identifier.route.device->mtu, peer.mtu);
  attributes.dest_qp_num = peer.qp_number;
  attributes.rq_psn = peer.psn;
  if (identifier.qp_type != IBV_QPT_RC) return;
  attributes.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attributes.max_dest_rd_atomic = identifier.connection.own.responder_resources;
}

void fill_ready_to_send(const Identifier& identifier, ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask |= IBV_QP_SQ_PSN;
  attributes.sq_psn = identifier.connection.own.psn;
  if (identifier.qp_type != IBV_QPT_RC) return;
  // Both sides use the numbers of retries from the request.
  const Message& request = identifier.connection.listener != 0 ? identifier.connection.peer : identifier.connection.own;
  attributes.qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  attributes.timeout = identifier.route.ack_timeout;
  attributes.retry_cnt = request.retry_count;
  attributes.rnr_retry = identifier.connection.peer.rnr_retry_count;
  attributes.max_rd_atomic = identifier.connection.own.initiator_depth;
}

}  // namespace

ib_uverbs_ah_attr address_vector(const Identifier& identifier, const Address& destination) {
  ib_uverbs_ah_attr vector = {};
  std::copy(destination.bytes.begin(), destination.bytes.end(), vector.grh.dgid);
  vector.grh.sgid_index = identifier.route.device->gid_index;
  vector.grh.hop_limit = kHopLimit;
  vector.grh.traffic_class = identifier.route.traffic_class;
  vector.is_global = 1;
  vector.port_num = identifier.route.device->port;
  return vector;
}

ib_uverbs_qp_attr queue_pair_attributes(const Identifier& identifier, std::uint32_t state) {
  ib_uverbs_qp_attr attributes = {};
  const bool connected = identifier.state >= State::kConnecting;
  if (!identifier.route.device || (state != IBV_QPS_INIT && !connected && !identifier.is_datagram())) fail(EINVAL);
  attributes.qp_attr_mask = IBV_QP_STATE;
  attributes.qp_state = state;
  if (state == IBV_QPS_INIT)
    fill_init(identifier, attributes);
  else if (state == IBV_QPS_RTR && !identifier.is_datagram())
    fill_ready_to_receive(identifier, attributes);
  else if (state == IBV_QPS_RTS)
    fill_ready_to_send(identifier, attributes);
  else if (state != IBV_QPS_RTR)
    fail(EINVAL);
  return attributes;
}

}  // namespace plugfest::rdma_cm
