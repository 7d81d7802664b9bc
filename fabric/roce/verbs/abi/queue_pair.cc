// Queue pairs and shared receive queues.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/context.h"

namespace plugfest::roce::verbs {
namespace {

// Throws EINVAL unless `object` exists and belongs to the context.
template <typename Object>
Object* checked(ibv_context& context, Object* object) {
  if (object == nullptr || object->context != &context) fail(EINVAL);
  return object;
}

void on_limit_reached(void* srq) { post_async_event(static_cast<ibv_srq*>(srq), IBV_EVENT_SRQ_LIMIT_REACHED); }

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr& attributes) {
  const ibv_srq_attr& wanted = attributes.attr;
  if (wanted.max_wr < 1 || wanted.max_wr > limits::kWorkRequests || wanted.max_sge > limits::kScatterGather)
    fail(EINVAL);
  auto* created = new Srq(pd_of(pd), attributes);
  attributes.attr.max_wr = created->engine->max_receives();
  attributes.attr.max_sge = created->engine->max_segments();
  return created;
}

}  // namespace

// The receiving side of XRC has no queues and no protection domain, the sending side has no receive queue.
Qp::Qp(Context& context, Pd* domain, Xrcd* xrcd, const ibv_qp_init_attr& attributes, std::uint32_t flags)
    : ibv_qp_ex{},
      owner(context),
      allocation(owner->device, limits::Kind::kQueuePair),
      signals_all(attributes.sq_sig_all != 0) {
  ibv_context& opened = context.context;
  const bool only_receives = attributes.qp_type == IBV_QPT_XRC_RECV,
             only_sends = attributes.qp_type == IBV_QPT_XRC_SEND;
  QueuePairSettings settings;
  qp_base.context = &opened;
  if (only_receives) {
    xrcd_reference.emplace(checked(opened, xrcd)->references);
    settings.extended_domain = xrcd;
    no_completions.emplace(context.nic->context(), 1, CompletionQueueEvents{});
    settings.send_queue = settings.receive_queue = &*no_completions;
  } else {
    pd_reference.emplace(checked(opened, domain)->references);
    qp_base.pd = domain;
    Cq& sends = cq_of(checked(opened, attributes.send_cq));
    send_cq_reference.emplace(sends.references);
    qp_base.send_cq = attributes.send_cq;
    settings.send_queue = settings.receive_queue = &*sends.engine;
  }
  if (!only_receives && !only_sends) {
    Cq& receives = cq_of(checked(opened, attributes.recv_cq));
    receive_cq_reference.emplace(receives.references);
    qp_base.recv_cq = attributes.recv_cq;
    settings.receive_queue = &*receives.engine;
    if (attributes.srq != nullptr) {
      Srq& shared = srq_of(checked(opened, attributes.srq));
      if (shared.number != 0) fail(EINVAL);
      srq_reference.emplace(shared.references);
      qp_base.srq = attributes.srq;
      settings.shared_receives = &*shared.engine;
    }
  }
  qp_base.qp_context = attributes.qp_context;
  qp_base.qp_type = attributes.qp_type;
  qp_base.state = IBV_QPS_RESET;
  pthread_mutex_init(&qp_base.mutex, nullptr);
  pthread_cond_init(&qp_base.cond, nullptr);

  settings.type = attributes.qp_type;
  settings.capabilities = attributes.cap;
  settings.signal_all = signals_all;
  settings.blocks_own_multicast = (flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
  settings.async = [](void* qp, ibv_event_type type) { post_async_event(static_cast<ibv_qp*>(qp), type); };
  settings.context = &qp_base;
  engine.emplace(context.nic->context(), only_receives ? xrcd->no_domain : domain->engine, settings);
  qp_base.qp_num = engine->number();
  qp_base.handle = engine->number();
}

Qp::~Qp() {
  engine.reset();
  retire_events(*this);
  pthread_cond_destroy(&qp_base.cond);
  pthread_mutex_destroy(&qp_base.mutex);
}

ExtendedPosting& extended_posting_of(ibv_qp_ex& queue_pair) { return static_cast<Qp&>(queue_pair).posting; }

int post_all(ibv_qp& queue_pair, ibv_send_wr& list) noexcept {
  ibv_send_wr* bad = nullptr;
  return status_of([&] { return qp_of(&queue_pair).engine->post_send(&list, &bad, true); });
}

ibv_qp* create_extended_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_qp* {
    constexpr std::uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const std::uint32_t given = attributes->comp_mask;
    if ((given & ~kKnown) != 0) fail(EOPNOTSUPP);
    Pd* const domain = (given & IBV_QP_INIT_ATTR_PD) != 0 ? &pd_of(attributes->pd) : nullptr;
    Xrcd* const xrcd = (given & IBV_QP_INIT_ATTR_XRCD) != 0 ? &xrcd_of(attributes->xrcd) : nullptr;
    const std::uint32_t flags = (given & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? attributes->create_flags : 0;
    if ((flags & ~std::uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) fail(EOPNOTSUPP);
    const bool extended = (given & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (extended && (attributes->send_ops_flags & ~extended_send_operations(attributes->qp_type)) != 0)
      fail(EOPNOTSUPP);

    const ibv_qp_init_attr plain = {attributes->qp_context, attributes->send_cq, attributes->recv_cq,   attributes->srq,
                                    attributes->cap,        attributes->qp_type, attributes->sq_sig_all};
    auto* created = new Qp(context_of(context), domain, xrcd, plain, flags);
    attributes->cap = created->engine->capabilities();
    if (extended) {
      created->uses_extended_posting = true;
      install_extended_posting(*created);
    }
    return &created->qp_base;
  });
}

void install_posting(ibv_context_ops& ops) {
  ops.post_send = [](ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
    *bad = list;  // the result after an exception; otherwise the engine sets it
    return status_of([&] { return qp_of(qp).engine->post_send(list, bad); });
  };
  ops.post_recv = [](ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
    *bad = list;
    return status_of([&] { return qp_of(qp).engine->post_receive(list, bad); });
  };
  ops.post_srq_recv = [](ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
    *bad = list;
    if (srq_of(srq).owner->nic->in_child()) return EIO;
    return status_of([&] { return srq_of(srq).engine->post(list, bad); });
  };
}

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  return pointer_or_errno([&]() -> ibv_qp* {
    auto* created = new Qp(context_of(pd->context), &pd_of(pd), nullptr, *qp_init_attr);
    qp_init_attr->cap = created->engine->capabilities();
    return &created->qp_base;
  });
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  Qp& object = qp_of(qp);
  return object.uses_extended_posting ? &object : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  return status_of([&] {
    const int error = qp_of(qp).engine->modify(*attr, attr_mask);
    if (error == 0 && (attr_mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return error;
  });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr) {
  return status_of([&] {
    const Qp& object = qp_of(qp);
    *attr = {};
    object.engine->query(*attr);
    if ((attr_mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    *init_attr = {};
    init_attr->qp_context = qp->qp_context;
    init_attr->send_cq = qp->send_cq;
    init_attr->recv_cq = qp->recv_cq;
    init_attr->srq = qp->srq;
    init_attr->cap = object.engine->capabilities();
    init_attr->qp_type = qp->qp_type;
    init_attr->sq_sig_all = object.signals_all ? 1 : 0;
    return 0;
  });
}

// The group of a multicast GID is an IP address; Ethernet ports ignore the LID.
int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t /*lid*/) {
  return status_of([&] { return qp_of(qp).engine->attach(Address(*gid)); });
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t /*lid*/) {
  return status_of([&] { return qp_of(qp).engine->detach(Address(*gid)); });
}

int ibv_destroy_qp(ibv_qp* qp) {
  return status_of([&] {
    if (qp_of(qp).engine->in_group()) return EBUSY;
    delete &qp_of(qp);
    return 0;
  });
}

// A retransmission may write earlier bytes of a message again.
int ibv_query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*op*/, uint32_t /*flags*/) { return 0; }

// Enhanced connection establishment works between NICs of one vendor only.
int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) { return EOPNOTSUPP; }

int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) { return EOPNOTSUPP; }

}  // extern "C"

Srq::Srq(Pd& domain, const ibv_srq_init_attr& attributes)
    : ibv_srq{},
      owner(*domain.owner),
      allocation(owner->device, limits::Kind::kSharedReceiveQueue),
      pd_reference(domain.references) {
  context = domain.context;
  pd = &domain;
  srq_context = attributes.srq_context;
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
  engine.emplace(attributes.attr.max_wr, attributes.attr.max_sge);
}

void Srq::extend(Xrcd& xrcd, Cq& completions) {
  xrcd_reference.emplace(xrcd.references);
  cq_reference.emplace(completions.references);
  const NicContext nic = owner->nic->context();
  const std::lock_guard lock(nic.lock);
  number = nic.extended_receives.add({*engine, *completions.engine, pd_of(pd).engine, &xrcd});
}

Srq::~Srq() {
  const NicContext nic = owner->nic->context();
  if (number != 0 && !nic.lock.in_child()) {
    const std::lock_guard lock(nic.lock);
    nic.extended_receives.remove(number);
  }
  engine.reset();
  retire_events(*this);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

ibv_srq* create_extended_srq(ibv_context* /*context*/, ibv_srq_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_srq* {
    constexpr std::uint32_t kExtended = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD;
    constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kExtended;
    const std::uint32_t given = attributes->comp_mask;
    if ((given & ~kKnown) != 0) fail(EOPNOTSUPP);
    if ((given & IBV_SRQ_INIT_ATTR_PD) == 0) fail(EINVAL);
    const ibv_srq_type type = (given & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attributes->srq_type : IBV_SRQT_BASIC;
    if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) fail(EOPNOTSUPP);
    if (type == IBV_SRQT_XRC && (given & kExtended) != kExtended) fail(EINVAL);
    ibv_srq_init_attr plain = {attributes->srq_context, attributes->attr};
    ibv_srq* created = create_srq(attributes->pd, plain);
    if (type == IBV_SRQT_XRC) srq_of(created).extend(xrcd_of(attributes->xrcd), cq_of(attributes->cq));
    attributes->attr = plain.attr;
    return created;
  });
}

Xrcd::Xrcd(Context& opened) : ibv_xrcd{&opened.context}, owner(opened), no_domain(opened.nic->memory()) {}

ibv_xrcd* open_extended_domain(ibv_context* context, ibv_xrcd_init_attr* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_xrcd* {
    constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes->comp_mask != kNeeded) fail(EINVAL);
    if (attributes->fd == -1 && (attributes->oflags & O_CREAT) == 0) fail(EINVAL);
    return new Xrcd(context_of(context));
  });
}

int close_extended_domain(ibv_xrcd* xrcd) noexcept { return destroy(xrcd_of(xrcd)); }

int number_of_srq(ibv_srq* srq, std::uint32_t* number) noexcept {
  *number = srq_of(srq).number;
  return *number == 0 ? EOPNOTSUPP : 0;
}

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* srq_init_attr) {
  return pointer_or_errno([&] { return create_srq(pd, *srq_init_attr); });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* srq_attr, int srq_attr_mask) {
  return status_of([&] {
    if ((srq_attr_mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // IBV_DEVICE_SRQ_RESIZE is not set
    if ((srq_attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
    if (srq_of(srq).owner->nic->in_child()) return EIO;
    ReceiveQueue& receives = *srq_of(srq).engine;
    if (srq_attr->srq_limit > receives.max_receives()) return EINVAL;
    receives.set_limit(srq_attr->srq_limit, on_limit_reached, srq);
    return 0;
  });
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* srq_attr) {
  return status_of([&] {
    const ReceiveQueue& receives = *srq_of(srq).engine;
    *srq_attr = {receives.max_receives(), receives.max_segments(), receives.limit()};
    return 0;
  });
}

int ibv_destroy_srq(ibv_srq* srq) { return destroy(srq_of(srq)); }

}  // extern "C"

}  // namespace plugfest::roce::verbs
