#include <fmt/format.h>

#include "fabric/system/number.h"
#include "harness/rank/memory.h"
#include "harness/rank/workloads/replay/proxy.h"
#include "harness/rank/workloads/replay/slot.h"

namespace plugfest::rank {

namespace {

void begin(ProxyOperation& operation) {
  for (std::size_t i = 0; i < operation.nsubs; ++i) {
    ProxySub& sub = operation.subs[i];
    sub.base = round_up(sub.end->step, operation.kernel->chunk_steps);
    sub.end->step = sub.base + sub.nsteps;
    sub.posted = sub.transmitted = sub.done = 0;
  }
  operation.ready = false;
}

/// Gives the GPU another slot.
void give_credit(ProxyOperation& operation, std::size_t index) {
  ProxySub& sub = operation.subs[index];
  if (sub.end->pooled(operation.kernel->protocol)) {
    sub.end->fifo[(sub.base + sub.posted) % kSteps].offset = operation.pool_offset(index, sub.posted);
  }
  sub.posted += operation.kernel->slice_steps;
  if (sub.end->plan().shared) {
    sub.end->head = static_cast<std::int64_t>(sub.base + sub.posted) - static_cast<std::int64_t>(kSteps);
  }
}

/// Whether the GPU has filled the slot of the next message.
bool is_filled(const ProxyOperation& operation, const ProxySub& sub) {
  const std::uint64_t step = sub.base + sub.transmitted;
  const std::int64_t size = sub.end->fifo[step % kSteps].size;
  if (size == -1) return false;
  // The GPU announces the size of an LL message before its lines, which it alone may see.
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
      if (sub.transmitted < sub.posted && is_filled(*this, sub)) {
        return text("isend", sub.transmitted, "was never accepted");
      }
    } else {
      if (sub.received < sub.posted) return text("irecv", sub.received, "never completed");
      if (sub.posted < sub.nsteps && sub.posted < sub.done + depth()) {
        return text("irecv", sub.posted, "was never accepted");
      }
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

}  // namespace plugfest::rank
