// Asynchronous events and events of completion queues: delivery to the program and acknowledgement.
#include <infiniband/verbs.h>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

namespace plugfest::roce::verbs {
namespace {

enum class Source { kCompletionQueue, kQueuePair, kSharedReceiveQueue, kPort };

Source source_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Source::kCompletionQueue;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Source::kQueuePair;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Source::kSharedReceiveQueue;
    default:
      return Source::kPort;
  }
}

void count_delivered(const ibv_async_event& event) {
  switch (source_of(event.event_type)) {
    case Source::kCompletionQueue:
      cq_of(event.element.cq).asynchronous_events.count_delivered(event.element.cq->mutex);
      return;
    case Source::kQueuePair:
      qp_of(event.element.qp).asynchronous_events.count_delivered(event.element.qp->mutex);
      return;
    case Source::kSharedReceiveQueue:
      srq_of(event.element.srq).asynchronous_events.count_delivered(event.element.srq->mutex);
      return;
    case Source::kPort:
      return;
  }
}

}  // namespace

void post_async_event(ibv_cq* cq, ibv_event_type type) { cq_of(cq).owner->events.add({{.cq = cq}, type}); }
void post_async_event(ibv_qp* qp, ibv_event_type type) { qp_of(qp).owner->events.add({{.qp = qp}, type}); }
void post_async_event(ibv_srq* srq, ibv_event_type type) { srq_of(srq).owner->events.add({{.srq = srq}, type}); }

void retire_events(Cq& object) {
  ibv_cq* cq = ibv_cq_ex_to_cq(&object);
  if (cq->channel != nullptr) channel_of(cq->channel).events.remove_if([cq](ibv_cq* waiting) { return waiting == cq; });
  object.owner->events.remove_if([cq](const ibv_async_event& event) {
    return source_of(event.event_type) == Source::kCompletionQueue && event.element.cq == cq;
  });
  object.completion_events.wait(cq->mutex, cq->cond, cq->comp_events_completed);
  object.asynchronous_events.wait(cq->mutex, cq->cond, cq->async_events_completed);
}

void retire_events(Qp& object) {
  ibv_qp* qp = &object.qp_base;
  object.owner->events.remove_if([qp](const ibv_async_event& event) {
    return source_of(event.event_type) == Source::kQueuePair && event.element.qp == qp;
  });
  object.asynchronous_events.wait(qp->mutex, qp->cond, qp->events_completed);
}

void retire_events(Srq& object) {
  ibv_srq* srq = &object;
  object.owner->events.remove_if([srq](const ibv_async_event& event) {
    return source_of(event.event_type) == Source::kSharedReceiveQueue && event.element.srq == srq;
  });
  object.asynchronous_events.wait(srq->mutex, srq->cond, srq->events_completed);
}

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return value_or_errno([&] { return context_of(context).events.take(*event, count_delivered); });
}

void ibv_ack_async_event(ibv_async_event* event) {
  switch (source_of(event->event_type)) {
    case Source::kCompletionQueue: {
      ibv_cq* cq = event->element.cq;
      EventAcknowledgement::acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
      return;
    }
    case Source::kQueuePair: {
      ibv_qp* qp = event->element.qp;
      EventAcknowledgement::acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
      return;
    }
    case Source::kSharedReceiveQueue: {
      ibv_srq* srq = event->element.srq;
      EventAcknowledgement::acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
      return;
    }
    case Source::kPort:
      return;
  }
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
