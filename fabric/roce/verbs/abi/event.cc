// Asynchronous events and events of completion queues: delivery to the program and acknowledgement.
#include <infiniband/verbs.h>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

namespace plugfest::roce::verbs {
namespace {

// Calls `body` with the object of an event and the object's base class. Does nothing for an event of the port.
template <typename Body>
void with_object(const ibv_async_event& event, Body body) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return body(cq_of(event.element.cq), *event.element.cq);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return body(qp_of(event.element.qp), *event.element.qp);
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return body(srq_of(event.element.srq), *event.element.srq);
    default:
      return;
  }
}

// The number of asynchronous events that the program has acknowledged.
std::uint32_t& acknowledged(ibv_cq& cq) { return cq.async_events_completed; }
std::uint32_t& acknowledged(ibv_qp& qp) { return qp.events_completed; }
std::uint32_t& acknowledged(ibv_srq& srq) { return srq.events_completed; }

template <typename Object, typename Base>
void retire_asynchronous_events(Object& object, Base& base) {
  if (object.owner->nic->in_child()) return;
  object.owner->events.remove_if([&](const ibv_async_event& event) {
    bool is_for_object = false;
    with_object(event, [&](auto&, auto& other) { is_for_object = static_cast<void*>(&other) == &base; });
    return is_for_object;
  });
  object.asynchronous_events.wait(base.mutex, base.cond, acknowledged(base));
}

}  // namespace

void post_async_event(ibv_cq* cq, ibv_event_type type) { cq_of(cq).owner->events.add({{.cq = cq}, type}); }
void post_async_event(ibv_qp* qp, ibv_event_type type) { qp_of(qp).owner->events.add({{.qp = qp}, type}); }
void post_async_event(ibv_srq* srq, ibv_event_type type) { srq_of(srq).owner->events.add({{.srq = srq}, type}); }

// A child after fork() gets no events, and must not wait for acknowledgements, which its parent makes.
void retire_events(Cq& object) {
  if (object.owner->nic->in_child()) return;
  ibv_cq* cq = ibv_cq_ex_to_cq(&object);
  if (cq->channel != nullptr) channel_of(cq->channel).events.remove_if([cq](ibv_cq* waiting) { return waiting == cq; });
  object.completion_events.wait(cq->mutex, cq->cond, cq->comp_events_completed);
  retire_asynchronous_events(object, *cq);
}
void retire_events(Qp& object) { retire_asynchronous_events(object, object.qp_base); }
void retire_events(Srq& object) { retire_asynchronous_events(object, static_cast<ibv_srq&>(object)); }

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return value_or_errno([&] {
    return context_of(context).events.take(*event, [](const ibv_async_event& taken) {
      with_object(taken, [](auto& object, auto& base) { object.asynchronous_events.count_delivered(base.mutex); });
    });
  });
}

void ibv_ack_async_event(ibv_async_event* event) {
  with_object(*event, [](auto&, auto& base) {
    EventAcknowledgement::acknowledge(base.mutex, base.cond, acknowledged(base), 1);
  });
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
