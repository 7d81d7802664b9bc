// Queue pairs and posting.
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

namespace plugfest::roce::verbs {
namespace {

// An object that a queue pair of this domain can use: there, and of the same context.
template <typename Object>
Object* usable(Domain& domain, Object* object) {
  if (object == nullptr || object->context != domain.context) fail(EINVAL);
  return object;
}

}  // namespace

Pair::Pair(Domain& domain, const ibv_qp_init_attr& attributes)
    : ibv_qp_ex{},
      owner(*domain.owner),
      of_device(owner->device, limits::Kind::kQueuePair),
      of_domain(domain.users),
      of_send_queue(completions_of(usable(domain, attributes.send_cq)).users),
      of_receive_queue(completions_of(usable(domain, attributes.recv_cq)).users),
      signals_all(attributes.sq_sig_all != 0) {
  qp_base.context = domain.context;
  qp_base.qp_context = attributes.qp_context;
  qp_base.pd = &domain;
  qp_base.send_cq = attributes.send_cq;
  qp_base.recv_cq = attributes.recv_cq;
  qp_base.srq = attributes.srq;
  qp_base.qp_type = attributes.qp_type;
  qp_base.state = IBV_QPS_RESET;
  pthread_mutex_init(&qp_base.mutex, nullptr);
  pthread_cond_init(&qp_base.cond, nullptr);

  QueuePairSettings settings;
  settings.type = attributes.qp_type;
  settings.send_queue = &*completions_of(attributes.send_cq).engine;
  settings.receive_queue = &*completions_of(attributes.recv_cq).engine;
  if (attributes.srq != nullptr) {
    of_shared_receives.emplace(shared_receives_of(usable(domain, attributes.srq)).users);
    settings.shared_receives = &*shared_receives_of(attributes.srq).engine;
  }
  settings.capabilities = attributes.cap;
  settings.signal_all = signals_all;
  settings.async = [](void* qp, ibv_event_type type) { announce(static_cast<ibv_qp*>(qp), type); };
  settings.context = &qp_base;
  engine.emplace(domain.engine, settings);
  qp_base.qp_num = engine->number();
  qp_base.handle = engine->number();
}

Pair::~Pair() {
  engine.reset();
  settle_events(*this);
  pthread_cond_destroy(&qp_base.cond);
  pthread_mutex_destroy(&qp_base.mutex);
}

ExtendedPosting& extended_posting_of(ibv_qp_ex& queue_pair) { return static_cast<Pair&>(queue_pair).posting; }

ibv_qp* create_extended_pair(ibv_context* /*context*/, ibv_qp_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_qp* {
    constexpr std::uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const std::uint32_t given = attributes->comp_mask;
    if ((given & ~kKnown) != 0) fail(EOPNOTSUPP);
    if ((given & IBV_QP_INIT_ATTR_PD) == 0) fail(EINVAL);
    if ((given & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0) fail(EOPNOTSUPP);
    const bool extended = (given & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (extended && (attributes->send_ops_flags & ~extended_send_operations(attributes->qp_type)) != 0)
      fail(EOPNOTSUPP);

    const ibv_qp_init_attr plain = {attributes->qp_context, attributes->send_cq, attributes->recv_cq,   attributes->srq,
                                    attributes->cap,        attributes->qp_type, attributes->sq_sig_all};
    auto* made = new Pair(domain_of(attributes->pd), plain);
    attributes->cap = made->engine->capabilities();
    if (extended) {
      made->posts_extended = true;
      install_extended_posting(*made);
    }
    return &made->qp_base;
  });
}

void install_posting(ibv_context_ops& ops) {
  ops.post_send = [](ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
    *bad = list;  // for an exception; the engine sets it otherwise
    return status_of([&] { return pair_of(qp).engine->post_send(list, bad); });
  };
  ops.post_recv = [](ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
    *bad = list;
    return status_of([&] { return pair_of(qp).engine->post_receive(list, bad); });
  };
  ops.post_srq_recv = [](ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
    *bad = list;
    return status_of([&] { return shared_receives_of(srq).engine->post(list, bad); });
  };
}

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  return pointer_or_errno([&]() -> ibv_qp* {
    auto* made = new Pair(domain_of(pd), *qp_init_attr);
    qp_init_attr->cap = made->engine->capabilities();
    return &made->qp_base;
  });
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  Pair& pair = pair_of(qp);
  return pair.posts_extended ? &pair : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  return status_of([&] {
    const int error = pair_of(qp).engine->modify(*attr, attr_mask);
    if (error == 0 && (attr_mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return error;
  });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr) {
  return status_of([&] {
    const Pair& pair = pair_of(qp);
    *attr = {};
    pair.engine->query(*attr);
    if ((attr_mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    *init_attr = {};
    init_attr->qp_context = qp->qp_context;
    init_attr->send_cq = qp->send_cq;
    init_attr->recv_cq = qp->recv_cq;
    init_attr->srq = qp->srq;
    init_attr->cap = pair.engine->capabilities();
    init_attr->qp_type = qp->qp_type;
    init_attr->sq_sig_all = pair.signals_all ? 1 : 0;
    return 0;
  });
}

int ibv_destroy_qp(ibv_qp* qp) {
  return status_of([&] {
    delete &pair_of(qp);
    return 0;
  });
}

// Bytes of a message are placed packet by packet, but a retransmission may write earlier ones again.
int ibv_query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*op*/, uint32_t /*flags*/) { return 0; }

// Enhanced connection establishment is between two NICs of one vendor.
int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) { return EOPNOTSUPP; }

int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) { return EOPNOTSUPP; }

}  // extern "C"
}  // namespace plugfest::roce::verbs
