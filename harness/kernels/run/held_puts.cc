#include "harness/kernels/run/held_puts.h"

#include <algorithm>
#include <iterator>

namespace plugfest::kernels {
namespace {

constexpr std::uintptr_t kDescriptorBytes = 64;
// The delay of a descriptor while all threads of its block wait: kSeldomUs for one in kPerSeldom, and kShortestUs to
// kLongestUs for the others. Other ranks run during this time.
constexpr std::uint64_t kShortestUs = 4'000, kLongestUs = 20'000, kSeldomUs = 60'000, kPerSeldom = 4;
// After n * kFew descriptors the delay is divided by n + 1, so that many puts do not take minutes.
constexpr unsigned kFew = 16;
// Added to the delay while threads of the block run. It is bounded, because they may never wait.
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

bool HeldPuts::release_due(bool waits, Time now) {
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
    ++released_;
    any = true;
    it = held.descriptors.empty() ? held_.erase(it) : std::next(it);
  }
  return any;
}

std::chrono::microseconds HeldPuts::next_delay() {
  const std::uint64_t us =
      random_() % kPerSeldom == 0 ? kSeldomUs : kShortestUs + random_() % (kLongestUs - kShortestUs);
  return std::chrono::microseconds(us / (1 + released_ / kFew));
}

}  // namespace plugfest::kernels
