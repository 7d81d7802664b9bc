// Shared receive queues.
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/limits.h"

namespace plugfest::roce::verbs {
namespace {

void limit_reached(void* srq) { announce(static_cast<ibv_srq*>(srq), IBV_EVENT_SRQ_LIMIT_REACHED); }

}  // namespace

SharedReceives::SharedReceives(Domain& domain, const ibv_srq_init_attr& attributes)
    : ibv_srq{},
      owner(*domain.owner),
      of_device(owner->device, limits::Kind::kSharedReceiveQueue),
      of_domain(domain.users) {
  context = domain.context;
  pd = &domain;
  srq_context = attributes.srq_context;
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
  engine.emplace(attributes.attr.max_wr, attributes.attr.max_sge);
}

SharedReceives::~SharedReceives() {
  engine.reset();
  settle_events(*this);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

namespace {

ibv_srq* make_shared_receives(ibv_pd* pd, ibv_srq_init_attr& attributes) {
  const ibv_srq_attr& wanted = attributes.attr;
  if (wanted.max_wr < 1 || wanted.max_wr > limits::kWorkRequests || wanted.max_sge > limits::kScatterGather)
    fail(EINVAL);
  auto* made = new SharedReceives(domain_of(pd), attributes);
  attributes.attr.max_wr = made->engine->max_receives();
  attributes.attr.max_sge = made->engine->max_segments();
  return made;
}

}  // namespace

ibv_srq* create_extended_shared_receives(ibv_context* /*context*/, ibv_srq_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_srq* {
    constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if ((attributes->comp_mask & ~kKnown) != 0) fail(EOPNOTSUPP);
    if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) fail(EINVAL);
    const bool typed = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
    if (typed && attributes->srq_type != IBV_SRQT_BASIC) fail(EOPNOTSUPP);
    ibv_srq_init_attr plain = {attributes->srq_context, attributes->attr};
    ibv_srq* made = make_shared_receives(attributes->pd, plain);
    attributes->attr = plain.attr;
    return made;
  });
}

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* srq_init_attr) {
  return pointer_or_errno([&] { return make_shared_receives(pd, *srq_init_attr); });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* srq_attr, int srq_attr_mask) {
  return status_of([&] {
    if ((srq_attr_mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // IBV_DEVICE_SRQ_RESIZE is not claimed
    if ((srq_attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
    ReceiveQueue& receives = *shared_receives_of(srq).engine;
    if (srq_attr->srq_limit > receives.max_receives()) return EINVAL;
    receives.set_limit(srq_attr->srq_limit, limit_reached, srq);
    return 0;
  });
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* srq_attr) {
  return status_of([&] {
    const ReceiveQueue& receives = *shared_receives_of(srq).engine;
    *srq_attr = {receives.max_receives(), receives.max_segments(), receives.limit()};
    return 0;
  });
}

int ibv_destroy_srq(ibv_srq* srq) {
  SharedReceives& receives = shared_receives_of(srq);
  if (receives.users != 0) return EBUSY;
  delete &receives;
  return 0;
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
