// Shared receive queues.
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/limits.h"

namespace plugfest::roce::verbs {
namespace {

void on_limit_reached(void* srq) { post_async_event(static_cast<ibv_srq*>(srq), IBV_EVENT_SRQ_LIMIT_REACHED); }

}  // namespace

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

Srq::~Srq() {
  engine.reset();
  retire_events(*this);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

namespace {

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

ibv_srq* create_extended_srq(ibv_context* /*context*/, ibv_srq_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_srq* {
    constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if ((attributes->comp_mask & ~kKnown) != 0) fail(EOPNOTSUPP);
    if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) fail(EINVAL);
    const bool typed = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
    if (typed && attributes->srq_type != IBV_SRQT_BASIC) fail(EOPNOTSUPP);
    ibv_srq_init_attr plain = {attributes->srq_context, attributes->attr};
    ibv_srq* created = create_srq(attributes->pd, plain);
    attributes->attr = plain.attr;
    return created;
  });
}

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* srq_init_attr) {
  return pointer_or_errno([&] { return create_srq(pd, *srq_init_attr); });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* srq_attr, int srq_attr_mask) {
  return status_of([&] {
    if ((srq_attr_mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // IBV_DEVICE_SRQ_RESIZE is not set
    if ((srq_attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
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

int ibv_destroy_srq(ibv_srq* srq) {
  Srq& destroyed = srq_of(srq);
  if (destroyed.references != 0) return EBUSY;
  delete &destroyed;
  return 0;
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
