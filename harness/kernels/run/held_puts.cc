#include "harness/kernels/run/held_puts.h"

#include <algorithm>
#include <iterator>

namespace plugfest::kernels {
namespace {

constexpr std::uintptr_t kDescriptorBytes = 64;
// The time for which a descriptor is held back while all threads of its block wait, and for one in so many. Other ranks
// run on in this time.
constexpr std::uint64_t kShortestUs = 4'000, kLongestUs = 20'000, kSeldomUs = 60'000, kPerSeldom = 4;
// After so many descriptors, the time is half of it, and so on: many puts take little more time than some.
constexpr unsigned kFew = 16;
// The additional time while threads of its block run. They may do so for ever.
constexpr std::chrono::milliseconds kWhileRunning{250};

}  // namespace

void HeldPuts::hold(Queue queue, std::uint64_t* word, std::uint64_t value, Time now) {
  Held& held = held_[queue];
  if (held.descriptors.empty()) held.due = now + next_delay();
  if (held.descriptors.empty() || reinterpret_cast<std::uintptr_t>(word) % kDescriptorBytes == 0)
    held.descriptors.emplace_back();
  held.descriptors.back().emplace_back(word, value);
}

HeldPuts::Time HeldPuts::due() const {
  Time first = Time::max();
  for (const auto& [queue, held] : held_) first = std::min(first, held.due);
  return first;
}

bool HeldPuts::let_go_if_due(bool waits, Time now) {
  bool any = false;
  for (auto it = held_.begin(); it != held_.end();) {
    Held& held = it->second;
    if (now < held.due + (waits ? std::chrono::milliseconds(0) : kWhileRunning)) {
      ++it;
      continue;
    }
    // NCCL's proxy waits for the flag in each word.
    for (const auto& [word, value] : held.descriptors.front()) __atomic_store_n(word, value, __ATOMIC_RELEASE);
    held.descriptors.pop_front();
    held.due = now + next_delay();
    ++let_go_;
    any = true;
    it = held.descriptors.empty() ? held_.erase(it) : std::next(it);
  }
  return any;
}

std::chrono::microseconds HeldPuts::next_delay() {
  const std::uint64_t us =
      random_() % kPerSeldom == 0 ? kSeldomUs : kShortestUs + random_() % (kLongestUs - kShortestUs);
  return std::chrono::microseconds(us / (1 + let_go_ / kFew));
}

}  // namespace plugfest::kernels
