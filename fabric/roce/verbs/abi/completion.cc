// Completion queues and completion channels.
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/extended.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/context.h"

namespace plugfest::roce::verbs {

CompletionChannel::CompletionChannel(Context& opened) : ibv_comp_channel{}, owner(opened) {
  context = &opened.context;
  fd = events.descriptor();
}

Cq::Cq(Context& opened, int capacity, void* program_context, ibv_comp_channel* event_channel, std::uint64_t fields,
       bool single_threaded)
    : ibv_cq_ex{},
      owner(opened),
      allocation(opened.device, limits::Kind::kCompletionQueue),
      one_thread(single_threaded) {
  context = &opened.context;
  channel = event_channel;
  cq_context = program_context;
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
  install_extended_polling(*this, fields);

  CompletionQueueEvents events;
  events.context = ibv_cq_ex_to_cq(this);
  events.async = [](void* queue, ibv_event_type type) { post_async_event(static_cast<ibv_cq*>(queue), type); };
  if (event_channel != nullptr) {
    channel_reference.emplace(channel_of(event_channel).references);
    events.completion = [](void* queue) {
      auto* cq = static_cast<ibv_cq*>(queue);
      channel_of(cq->channel).events.add(cq);
    };
  }
  engine.emplace(opened.nic->context(), capacity, events, (fields & kTimestampFields) != 0);
  cqe = engine->capacity();
}

Cq::~Cq() {
  engine.reset();
  retire_events(*this);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

const TimedCompletion& current_completion_of(const ibv_cq_ex& queue) { return static_cast<const Cq&>(queue).current; }

bool lock_polling(ibv_cq_ex& queue) {
  Cq& cq = static_cast<Cq&>(queue);
  if (cq.owner->nic->in_child()) return false;
  if (!cq.one_thread) cq.polling.lock();
  return true;
}

void unlock_polling(ibv_cq_ex& queue) {
  Cq& cq = static_cast<Cq&>(queue);
  if (!cq.one_thread) cq.polling.unlock();
}

int take_completion(ibv_cq_ex& queue) noexcept {
  return value_or_errno([&] {
    Cq& cq = static_cast<Cq&>(queue);
    return cq.engine->poll_one(cq.current);
  });
}

void install_polling(ibv_context_ops& ops) {
  ops.poll_cq = [](ibv_cq* cq, int count, ibv_wc* completions) {
    return value_or_errno([&] { return cq_of(cq).engine->poll(count, completions); });
  };
  ops.req_notify_cq = [](ibv_cq* cq, int solicited_only) {
    return status_of([&] { return cq_of(cq).engine->request_notify(solicited_only != 0); });
  };
}

namespace {

Cq* create_cq(ibv_context* context, std::uint64_t entries, void* program_context, ibv_comp_channel* channel,
              std::uint64_t vector, std::uint64_t fields = 0, bool one_thread = false) {
  if (entries < 1 || entries > limits::kCompletionEntries) fail(EINVAL);
  if (channel != nullptr && channel->context != context) fail(EINVAL);
  if (vector >= static_cast<std::uint64_t>(context->num_comp_vectors)) fail(EINVAL);
  return new Cq(context_of(context), static_cast<int>(entries), program_context, channel, fields, one_thread);
}

}  // namespace

ibv_cq_ex* create_extended_cq(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept {
  return pointer_or_errno([&]() -> ibv_cq_ex* {
    // IGNORE_OVERRUN permits an optimization that this library does not make.
    constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if ((attributes->comp_mask & ~static_cast<std::uint32_t>(IBV_CQ_INIT_ATTR_MASK_FLAGS)) != 0) fail(EOPNOTSUPP);
    const std::uint32_t flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes->flags : 0;
    if ((flags & ~kFlags) != 0) fail(EOPNOTSUPP);
    if ((attributes->wc_flags & ~kSupportedCompletionFields) != 0) fail(EOPNOTSUPP);
    return create_cq(context, attributes->cqe, attributes->cq_context, attributes->channel, attributes->comp_vector,
                     attributes->wc_flags, (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0);
  });
}

// Accepts any moderation. Moderation permits the NIC to delay events; this NIC delays none.
int modify_moderation(ibv_cq*, ibv_modify_cq_attr* attributes) noexcept {
  return status_of([&] { return attributes->attr_mask == IBV_CQ_ATTR_MODERATE ? 0 : EOPNOTSUPP; }, "ibv_modify_cq");
}

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return pointer_or_errno([&]() -> ibv_comp_channel* { return new CompletionChannel(context_of(context)); });
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) { return destroy(channel_of(channel)); }

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) {
  return pointer_or_errno([&]() -> ibv_cq* {
    if (cqe < 1 || comp_vector < 0) fail(EINVAL);
    return ibv_cq_ex_to_cq(create_cq(context, static_cast<std::uint64_t>(cqe), cq_context, channel,
                                     static_cast<std::uint64_t>(comp_vector)));
  });
}

int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return status_of([&] {
    if (cqe < 1 || cqe > limits::kCompletionEntries) return EINVAL;
    CompletionQueue& engine = *cq_of(cq).engine;
    const int error = engine.resize(cqe);
    if (error == 0) cq->cqe = engine.capacity();
    return error;
  });
}

int ibv_destroy_cq(ibv_cq* cq) { return destroy(cq_of(cq)); }

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return value_or_errno([&] {
    ibv_cq* queue = nullptr;
    const int result = channel_of(channel).events.take(
        queue, [](ibv_cq* taken) { cq_of(taken).completion_events.count_delivered(taken->mutex); });
    if (result != 0) return result;
    *cq = queue;
    *cq_context = queue->cq_context;
    return 0;
  });
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  EventAcknowledgement::acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, nevents);
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
