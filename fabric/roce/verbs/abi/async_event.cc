// Asynchronous events: from the engine to the program, and what destroying an object waits for.
#include <infiniband/verbs.h>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

namespace plugfest::roce::verbs {
namespace {

enum class Subject { kCompletionQueue, kQueuePair, kSharedReceiveQueue, kPort };

Subject subject_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Subject::kCompletionQueue;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Subject::kQueuePair;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Subject::kSharedReceiveQueue;
    default:
      return Subject::kPort;
  }
}

void note_taken(const ibv_async_event& event) {
  switch (subject_of(event.event_type)) {
    case Subject::kCompletionQueue:
      completions_of(event.element.cq).asynchronous_events.note_taken(event.element.cq->mutex);
      return;
    case Subject::kQueuePair:
      pair_of(event.element.qp).asynchronous_events.note_taken(event.element.qp->mutex);
      return;
    case Subject::kSharedReceiveQueue:
      shared_receives_of(event.element.srq).asynchronous_events.note_taken(event.element.srq->mutex);
      return;
    case Subject::kPort:
      return;
  }
}

}  // namespace

void announce(ibv_cq* cq, ibv_event_type type) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.cq = cq;
  completions_of(cq).owner->events.add(event);
}

void announce(ibv_qp* qp, ibv_event_type type) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.qp = qp;
  pair_of(qp).owner->events.add(event);
}

void announce(ibv_srq* srq, ibv_event_type type) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.srq = srq;
  shared_receives_of(srq).owner->events.add(event);
}

void settle_events(Completions& completions) {
  ibv_cq* cq = ibv_cq_ex_to_cq(&completions);
  if (cq->channel != nullptr) channel_of(cq->channel).events.drop([cq](ibv_cq* waiting) { return waiting == cq; });
  completions.owner->events.drop([cq](const ibv_async_event& event) {
    return subject_of(event.event_type) == Subject::kCompletionQueue && event.element.cq == cq;
  });
  completions.completion_events.wait(cq->mutex, cq->cond, cq->comp_events_completed);
  completions.asynchronous_events.wait(cq->mutex, cq->cond, cq->async_events_completed);
}

void settle_events(Pair& pair) {
  ibv_qp* qp = &pair.qp_base;
  pair.owner->events.drop([qp](const ibv_async_event& event) {
    return subject_of(event.event_type) == Subject::kQueuePair && event.element.qp == qp;
  });
  pair.asynchronous_events.wait(qp->mutex, qp->cond, qp->events_completed);
}

void settle_events(SharedReceives& receives) {
  ibv_srq* srq = &receives;
  receives.owner->events.drop([srq](const ibv_async_event& event) {
    return subject_of(event.event_type) == Subject::kSharedReceiveQueue && event.element.srq == srq;
  });
  receives.asynchronous_events.wait(srq->mutex, srq->cond, srq->events_completed);
}

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return value_or_errno([&] { return context_of(context).events.take(*event, note_taken); });
}

void ibv_ack_async_event(ibv_async_event* event) {
  switch (subject_of(event->event_type)) {
    case Subject::kCompletionQueue: {
      ibv_cq* cq = event->element.cq;
      Acknowledgements::acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
      return;
    }
    case Subject::kQueuePair: {
      ibv_qp* qp = event->element.qp;
      Acknowledgements::acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
      return;
    }
    case Subject::kSharedReceiveQueue: {
      ibv_srq* srq = event->element.srq;
      Acknowledgements::acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
      return;
    }
    case Subject::kPort:
      return;
  }
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
