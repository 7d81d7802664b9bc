// Delays the puts of a kernel: GIN may execute a put at any time before its signal, so a missing waitSignal() or
// flush() has an effect only if puts are late.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace plugfest::kernels {

/// Holds back the descriptors of the puts and signals of one block, which NCCL's host proxy reads from queues in its
/// memory. Those in one queue stay in their order, so a signal is never before an earlier put to the same rank.
/// Source: gin_proxy.h of NCCL 2.28.9, postGfd(). Thread safety: one thread.
class HeldPuts {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// The context and the rank to which the puts go.
  using Queue = std::pair<std::uint64_t, std::uint64_t>;

  explicit HeldPuts(std::uint64_t seed) : random_(seed) {}

  /// The block stores one word of a descriptor. Descriptors have 64 bytes, and begin at a multiple of 64.
  void hold(Queue queue, std::uint64_t* word, std::uint64_t value, Time now);
  bool empty() const { return held_.empty(); }
  /// The time at which the earliest held descriptor is released if all threads of the block wait, or if the block has
  /// ended; Time::max() if none is held.
  Time due() const;
  /// Releases the first descriptor of each queue that is due. `waits`: whether all threads of the block wait; otherwise
  /// descriptors are held for longer, so that the block can overwrite their sources. Returns whether one was released.
  bool release_due(bool waits, Time now);

 private:
  using Descriptor = std::vector<std::pair<std::uint64_t*, std::uint64_t>>;
  struct Held {
    Time due;  ///< release time of the first one
    std::deque<Descriptor> descriptors;
  };

  std::chrono::microseconds next_delay();

  std::mt19937_64 random_;
  std::map<Queue, Held> held_;  ///< queues that are not empty
  unsigned released_ = 0;       ///< number of descriptors
};

}  // namespace plugfest::kernels
