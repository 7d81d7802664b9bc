// Forwards to the implementation.
#include "fabric/roce/qp/queue_pair.h"

#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

QueuePair::QueuePair(const NicContext& nic, const ProtectionDomain& domain, const QueuePairSettings& settings)
    : engine_(std::make_unique<QueuePairEngine>(nic, domain, settings)) {}

QueuePair::~QueuePair() = default;

std::uint32_t QueuePair::number() const { return engine_->number(); }
const ibv_qp_cap& QueuePair::capabilities() const { return engine_->capabilities(); }
int QueuePair::modify(const ibv_qp_attr& attributes, int mask) { return engine_->modify(attributes, mask); }
void QueuePair::query(ibv_qp_attr& attributes) const { engine_->query(attributes); }
ibv_qp_state QueuePair::state() const { return engine_->state(); }
int QueuePair::post_send(ibv_send_wr* list, ibv_send_wr** bad) { return engine_->post_send(list, bad); }
int QueuePair::post_receive(ibv_recv_wr* list, ibv_recv_wr** bad) { return engine_->post_receive(list, bad); }

}  // namespace plugfest::roce
