#include <algorithm>

#include "fabric/system/number.h"
#include "harness/rank/memory.h"
#include "harness/rank/workloads/replay/proxy.h"
#include "harness/rank/workloads/replay/slot.h"

namespace plugfest::rank {

namespace {

// Preset of *request when NCCL does not need the completion (NCCL_NET_OPTIONAL_RECV_COMPLETION).
constexpr std::uint64_t kOptionalCompletion = 1;

/// Puts subs with the same comm side by side, in groups of at most the number of buffers that the plugin takes.
void begin(ProxyOperation& operation, std::size_t most_buffers) {
  std::size_t size = 0;
  for (std::size_t s = 0; s < operation.nsubs; ++s) {
    if (s > 0) {
      const std::uint64_t comm = operation.subs[s - 1].end->plan().comm;
      std::size_t next = s;
      if (size < most_buffers) {
        while (next < operation.nsubs && operation.subs[next].end->plan().comm != comm) ++next;
      }
      if (size == most_buffers || next == operation.nsubs) {
        size = 0;
      } else if (next != s) {
        std::swap(operation.subs[s], operation.subs[next]);
      }
    }
    ++size;
    ProxySub& sub = operation.subs[s];
    sub.base = round_up(sub.end->step, operation.kernel->chunk_steps);
    sub.end->step = sub.base + sub.nsteps;
    sub.posted = sub.received = sub.transmitted = sub.done = 0;
    for (std::size_t i = 0; i < size; ++i) operation.subs[s - i].group_size = size;
  }
  operation.ready = false;
}

/// The buffers of a group's next irecv.
struct Post {
  std::vector<const ReplayEnd*> ends;
  std::vector<Piece> pieces;
};

/// Empty if a sub has no slot left, or no sub has a step left.
Post next_post(ProxyOperation& operation, std::size_t first, bool limit_size) {
  const ReplayKernel& kernel = *operation.kernel;
  Post post;
  for (std::size_t i = first; i < first + operation.subs[first].group_size; ++i) {
    ProxySub& sub = operation.subs[i];
    if (sub.posted >= sub.nsteps) continue;
    if (sub.posted >= sub.done + operation.depth()) return {};
    const std::uint64_t step = sub.base + sub.posted;
    std::uint64_t size = sub.end->step_size(kernel.protocol) * kernel.slice_steps;
    if (sub.end->pooled(kernel.protocol)) {
      sub.end->fifo[step % kSteps].offset = operation.pool_offset(i, sub.posted);
      size = kPoolSlot;
    }
    if (limit_size) size = std::min(size, sub.nbytes);
    const std::uint64_t slice = divide_up(sub.posted, kernel.slice_steps);
    post.ends.push_back(sub.end);
    post.pieces.push_back({number(sub.end->slot(kernel.protocol, step)), size, sub.end->plan().tag,
                           sub.end->buffer(kernel.protocol).mhandle, number(&sub.profiler_handles[slice % kSteps])});
  }
  return post;
}

/// Calls `action` for the first sub of each group.
template <class Action>
void for_each_group(ProxyOperation& operation, Action action) {
  for (std::size_t s = 0; s < operation.nsubs; s += operation.subs[s].group_size) action(s);
}

void post_receives(ProxyOperation& operation, ReplayCalls& calls, bool limit_size) {
  const ReplayKernel& kernel = *operation.kernel;
  bool attributes_set = false;
  for_each_group(operation, [&](std::size_t first) {
    const Post post = next_post(operation, first, limit_size);
    if (post.pieces.empty()) return;
    ProxySub& group = operation.subs[first];
    const std::uint64_t slot = group.posted % kSteps;
    if (!attributes_set) calls.set_attributes(false, kernel.protocol);
    attributes_set = true;
    if (kernel.protocol != ProxyProtocol::kSimple && post.pieces.size() == 1) {
      group.requests[slot] = kOptionalCompletion;
    }
    group.requests[slot] = calls.irecv(post.ends, post.pieces, group.requests[slot]);
    if (group.requests[slot] == 0) return;
    group.consumable[slot] = group.requests[slot];
    group.posted_count = static_cast<int>(post.pieces.size());
    // Subs without a step left advance, too.
    for (std::size_t i = 0; i < group.group_size; ++i) operation.subs[first + i].posted += kernel.slice_steps;
    operation.idle = false;
  });
}

void test_receives(ProxyOperation& operation, ReplayCalls& calls) {
  for_each_group(operation, [&](std::size_t first) {
    ProxySub& group = operation.subs[first];
    if (group.posted <= group.received) return;
    std::uint64_t& request = group.requests[group.received % kSteps];
    if (!calls.test(*group.end, request)) return;
    for (std::size_t i = 0; i < group.group_size; ++i) {
      ProxySub& sub = operation.subs[first + i];
      sub.end->fifo[(sub.base + sub.received) % kSteps].size = -1;
      sub.received += operation.kernel->slice_steps;
    }
    request = 0;  // NCCL would call iflush here, for memory of a GPU
    operation.idle = false;
  });
}

/// Tells the GPU what has arrived.
void forward(ProxyOperation& operation) {
  for_each_group(operation, [&](std::size_t first) {
    ProxySub& group = operation.subs[first];
    if (group.received <= group.transmitted) return;
    const std::uint64_t step = group.transmitted;
    for (std::size_t i = 0; i < group.group_size; ++i) {
      ProxySub& sub = operation.subs[first + i];
      sub.transmitted += operation.kernel->slice_steps;
      if (step < sub.nsteps) sub.end->tail = sub.base + sub.transmitted;
    }
    operation.idle = false;
  });
}

/// Frees the slots that the GPU has emptied.
void free_slots(ProxyOperation& operation, ReplayCalls& calls) {
  for_each_group(operation, [&](std::size_t first) {
    ProxySub& group = operation.subs[first];
    for (std::size_t i = 0; i < group.group_size; ++i) {
      ProxySub& sub = operation.subs[first + i];
      if (sub.done == sub.nsteps) continue;
      while (sub.end->head > static_cast<std::int64_t>(sub.base + sub.done) && sub.transmitted > sub.done) {
        std::uint64_t& request = group.consumable[sub.done % kSteps];
        if (request != 0) calls.consumed(*group.end, group.posted_count, request);
        request = 0;
        sub.done += operation.kernel->slice_steps;
        operation.idle = false;
        if (sub.done == sub.nsteps) {
          ++operation.finished_subs;
          break;
        }
      }
    }
  });
}

}  // namespace

void progress_receive(ProxyOperation& operation, ReplayCalls& calls, bool limit_posted_size, std::size_t most_buffers) {
  if (operation.ready) begin(operation, most_buffers);
  operation.idle = true;
  post_receives(operation, calls, limit_posted_size);
  if (!operation.idle) return;
  test_receives(operation, calls);
  if (!operation.idle) return;
  forward(operation);
  if (!operation.idle) return;
  free_slots(operation, calls);
}

}  // namespace plugfest::rank
