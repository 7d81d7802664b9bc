#include "harness/kernels/run/held_puts.h"

namespace plugfest::kernels {
namespace {

constexpr std::uintptr_t kDescriptorBytes = 64;
// The time for which a descriptor is held back while all threads of its block wait. Other ranks run on in this time.
constexpr std::chrono::microseconds kShortest{4'000};
constexpr std::uint64_t kSpreadUs = 16'000;
// The additional time while threads of its block run. They may do so for ever.
constexpr std::chrono::milliseconds kWhileRunning{250};
// After so many descriptors, two go on at a time, and so on: many puts take little more time than some.
constexpr std::size_t kPuts = 16;

}  // namespace

void HeldPuts::hold(std::uint64_t* word, std::uint64_t value, Time now) {
  if (held_.empty()) wait_anew(now);
  if (held_.empty() || reinterpret_cast<std::uintptr_t>(word) % kDescriptorBytes == 0) held_.emplace_back();
  held_.back().emplace_back(word, value);
}

bool HeldPuts::let_go_if_due(bool waits, Time now) {
  if (held_.empty() || now < due_ + (waits ? std::chrono::milliseconds(0) : kWhileRunning)) return false;
  for (std::size_t left = 1 + let_go_ / kPuts; left > 0 && !held_.empty(); --left) {
    // NCCL's proxy waits for the flag in each word.
    for (const auto& [word, value] : held_.front()) __atomic_store_n(word, value, __ATOMIC_RELEASE);
    held_.pop_front();
    ++let_go_;
  }
  wait_anew(now);
  return true;
}

void HeldPuts::wait_anew(Time now) { due_ = now + kShortest + std::chrono::microseconds(random_() % kSpreadUs); }

}  // namespace plugfest::kernels
