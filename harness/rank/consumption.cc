#include "harness/rank/consumption.h"

#include <algorithm>

namespace plugfest::rank {

void UnconsumedReceives::posted(std::uint64_t comm, std::int32_t count, std::uint64_t request) {
  const std::lock_guard lock(mutex_);
  Comm& of = comms_[comm];
  if (of.left_to_caller) return;
  of.receives.push_back({request});
  of.newest_count = count;
  in_flight_[request] = comm;
}

void UnconsumedReceives::completed(std::uint64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(request);
  if (found == in_flight_.end()) return;
  for (Receive& receive : comms_[found->second].receives) {
    if (receive.request != request || receive.done) continue;
    receive.done = true;
    break;
  }
  in_flight_.erase(found);
}

std::vector<UnconsumedReceives::Call> UnconsumedReceives::before_receive(std::uint64_t comm, std::int32_t count) {
  const std::lock_guard lock(mutex_);
  return take(comm, comms_[comm], most_receives(count) - 1);
}

std::vector<UnconsumedReceives::Call> UnconsumedReceives::before_consumed(std::uint64_t comm, std::uint64_t request) {
  const std::lock_guard lock(mutex_);
  Comm& of = comms_[comm];
  const auto found = std::find_if(of.receives.begin(), of.receives.end(),
                                  [&](const Receive& receive) { return receive.done && receive.request == request; });
  if (found == of.receives.end()) return {};
  const auto newer = static_cast<std::size_t>(of.receives.end() - found) - 1;
  of.receives.erase(found);
  return take(comm, of, newer);
}

std::vector<UnconsumedReceives::Call> UnconsumedReceives::leave_to_caller(std::uint64_t comm) {
  const std::lock_guard lock(mutex_);
  Comm& of = comms_[comm];
  of.left_to_caller = true;
  return take(comm, of, 0);
}

void UnconsumedReceives::closed(std::uint64_t comm) {
  const std::lock_guard lock(mutex_);
  comms_.erase(comm);
  std::erase_if(in_flight_, [&](const auto& receive) { return receive.second == comm; });
}

std::vector<UnconsumedReceives::Call> UnconsumedReceives::take(std::uint64_t number, Comm& comm, std::size_t kept) {
  std::vector<Call> calls;
  for (; comm.receives.size() > kept && comm.receives.front().done; comm.receives.pop_front())
    calls.push_back({number, comm.newest_count, comm.receives.front().request});
  return calls;
}

}  // namespace plugfest::rank
