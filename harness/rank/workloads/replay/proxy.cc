#include "harness/rank/workloads/replay/proxy.h"

#include <fmt/format.h>

#include "fabric/system/number.h"
#include "harness/rank/memory.h"

namespace plugfest::rank {

namespace {

void begin(ProxySub& sub, const ReplayKernel& kernel) {
  sub.base = round_up(sub.end->step, kernel.chunk_steps);
  sub.end->step = sub.base + sub.nsteps;
  sub.posted = sub.received = sub.transmitted = sub.done = 0;
}

void begin(ProxyOperation& operation) {
  for (std::size_t i = 0; i < operation.nsubs; ++i) begin(operation.subs[i], *operation.kernel);
  operation.ready = false;
}

// Gives the GPU another slot.
void give_credit(ProxyOperation& operation, std::size_t index) {
  ProxySub& sub = operation.subs[index];
  if (sub.end->pooled(operation.kernel->protocol))
    sub.end->fifo[(sub.base + sub.posted) % kSteps].offset = operation.pool_offset(index, sub.posted);
  sub.posted += operation.kernel->slice_steps;
  if (sub.end->plan().shared)
    sub.end->head = static_cast<std::int64_t>(sub.base + sub.posted) - static_cast<std::int64_t>(kSteps);
}

// Whether the GPU has filled the slot of the next message.
bool is_filled(const ProxyOperation& operation, const ProxySub& sub) {
  const std::uint64_t step = sub.base + sub.transmitted;
  const std::int64_t size = sub.end->fifo[step % kSteps].size;
  if (size == -1) return false;
  // The GPU announces the size of an LL message before it writes the lines, which only the GPU may read.
  return sub.end->tail > step || operation.kernel->protocol == ProxyProtocol::kLl;
}

bool transmit(ProxyOperation& operation, ProxySub& sub, ReplayCalls& calls, bool& attributes_set) {
  const ReplayKernel& kernel = *operation.kernel;
  const std::uint64_t step = sub.base + sub.transmitted;
  const std::uint64_t slice = divide_up(sub.transmitted, kernel.slice_steps);
  if (!attributes_set) calls.set_attributes(true, kernel.protocol);
  attributes_set = true;
  const Piece piece{number(sub.end->slot(kernel.protocol, step)),
                    static_cast<std::uint64_t>(sub.end->fifo[step % kSteps].size), sub.end->plan().tag,
                    sub.end->buffer(kernel.protocol).mhandle, number(&sub.profiler_handles[slice % kSteps])};
  std::uint64_t& request = sub.requests[step % kSteps];
  request = calls.isend(*sub.end, piece, request);
  if (request == 0) return false;
  sub.transmitted += kernel.slice_steps;
  return true;
}

bool complete(ProxyOperation& operation, ProxySub& sub, ReplayCalls& calls) {
  const std::uint64_t slot = (sub.base + sub.done) % kSteps;
  if (!calls.test(*sub.end, sub.requests[slot])) return false;
  sub.end->fifo[slot].size = -1;
  sub.done += operation.kernel->slice_steps;
  if (!sub.end->plan().shared) sub.end->head = static_cast<std::int64_t>(sub.base + sub.done);
  if (sub.done == sub.nsteps) ++operation.finished_subs;
  return true;
}

}  // namespace

std::uint64_t ProxyOperation::pool_offset(std::size_t sub, std::uint64_t posted) const {
  const ReplayConnection& plan = subs[sub].end->plan();
  return (plan.channel * kSharedSteps + posted % depth() * nsubs + sub) * kPoolSlot;
}

std::string ProxyOperation::waits_for() const {
  for (std::size_t i = 0; i < nsubs; ++i) {
    const ProxySub& sub = subs[i];
    if (sub.done >= sub.nsteps) continue;
    const auto text = [&](const char* call, std::uint64_t step, const char* what) {
      return fmt::format("{} of message {} of {} {} {} ({}) {}", call, step / kernel->slice_steps, kernel->name,
                         sends ? "to" : "from", sub.end->plan().peer, sub.end->text(), what);
    };
    if (sends) {
      if (sub.done < sub.transmitted) return text("isend", sub.done, "never completed");
      if (sub.transmitted < sub.posted && is_filled(*this, sub))
        return text("isend", sub.transmitted, "was never accepted");
    } else {
      if (sub.received < sub.posted) return text("irecv", sub.received, "never completed");
      if (sub.posted < sub.nsteps && sub.posted < sub.done + depth())
        return text("irecv", sub.posted, "was never accepted");
    }
  }
  return "";
}

void progress_send(ProxyOperation& operation, ReplayCalls& calls) {
  if (operation.ready) begin(operation);
  operation.idle = true;
  bool attributes_set = false;
  for (std::size_t i = 0; i < operation.nsubs; ++i) {
    ProxySub& sub = operation.subs[i];
    if (sub.done == sub.nsteps) continue;
    if (sub.posted < sub.nsteps && sub.posted < sub.done + operation.depth()) {
      give_credit(operation, i);
      operation.idle = false;
      continue;
    }
    if (sub.transmitted < sub.posted && sub.transmitted < sub.done + kSteps && is_filled(operation, sub) &&
        transmit(operation, sub, calls, attributes_set)) {
      operation.idle = false;
      continue;
    }
    if (sub.done < sub.transmitted && complete(operation, sub, calls)) operation.idle = false;
  }
}

namespace {

// Preset of *request when NCCL does not need the completion (NCCL_NET_OPTIONAL_RECV_COMPLETION).
constexpr std::uint64_t kOptionalCompletion = 1;

// Sorts subs by comm, in groups of at most the number of buffers that the plugin accepts in one receive.
void begin(ProxyOperation& operation, std::size_t most_buffers) {
  std::size_t size = 0;
  for (std::size_t s = 0; s < operation.nsubs; ++s) {
    if (s > 0) {
      const std::uint64_t comm = operation.subs[s - 1].end->plan().comm;
      std::size_t next = s;
      if (size < most_buffers)
        while (next < operation.nsubs && operation.subs[next].end->plan().comm != comm) ++next;
      if (size == most_buffers || next == operation.nsubs)
        size = 0;
      else if (next != s)
        std::swap(operation.subs[s], operation.subs[next]);
    }
    ++size;
    begin(operation.subs[s], *operation.kernel);
    for (std::size_t i = 0; i < size; ++i) operation.subs[s - i].group_size = size;
  }
  operation.ready = false;
}

// The buffers of a group's next irecv.
struct Post {
  std::vector<const ReplayEnd*> ends;
  std::vector<Piece> pieces;
};

// Empty if a sub has no slot left, or no sub has a step left.
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

// Calls `action` for the first sub of each group.
template <typename Action>
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
    if (kernel.protocol != ProxyProtocol::kSimple && post.pieces.size() == 1)
      group.requests[slot] = kOptionalCompletion;
    group.requests[slot] = calls.irecv(post.ends, post.pieces, group.requests[slot]);
    if (group.requests[slot] == 0) return;
    group.consumable[slot] = group.requests[slot];
    group.posted_count = static_cast<int>(post.pieces.size());
    // Subs without a step left also advance.
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

// Notifies the GPU of messages that have arrived.
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

// Frees the slots that the GPU has emptied.
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
