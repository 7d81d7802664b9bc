// Puts that the network does not get yet: GIN may carry them out at any time before their signal, so a missing
// waitSignal() or flush() shows only if they are late.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace plugfest::kernels {

/// Holds back the descriptors of the puts and signals of one block, which NCCL's host proxy reads from a queue in its
/// memory. They stay in their order, so a signal is never before an earlier put, and flush() waits for all of them.
/// Source: gin_proxy.h of NCCL 2.28.9, postGfd(). Thread safety: one thread.
class HeldPuts {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit HeldPuts(std::uint64_t seed) : random_(seed) {}

  /// The block stores one word of a descriptor. Descriptors have 64 bytes, and begin at a multiple of 64.
  void hold(std::uint64_t* word, std::uint64_t value, Time now);
  bool empty() const { return held_.empty(); }
  /// When the oldest one shall go on if all threads of the block wait, or if the block has ended.
  Time due() const { return due_; }
  /// Lets the oldest one go on if it is due, or a few if there were many. `waits`: all threads of the block wait;
  /// otherwise the oldest one stays for longer, so that the block may overwrite its source. Returns whether one did.
  bool let_go_if_due(bool waits, Time now);

 private:
  using Descriptor = std::vector<std::pair<std::uint64_t*, std::uint64_t>>;

  void wait_anew(Time now);

  std::mt19937_64 random_;
  std::deque<Descriptor> held_;
  std::size_t let_go_ = 0;  ///< descriptors
  Time due_;
};

}  // namespace plugfest::kernels
