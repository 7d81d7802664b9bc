// Synchronization of the threads of a block: barriers, and exchanges of values within a warp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/kernels/run/fiber.h"

namespace plugfest::kernels {

/// Threads that may continue.
using Released = std::vector<Fiber*>;

/// One barrier of a block. Thread safety: none; the block owns it.
class Barrier {
 public:
  /// `fiber` arrives. `threads`: how many the barrier waits for; 0 means all that are `alive`. Throws
  /// std::invalid_argument if the threads that wait disagree about the number, or wait for all threads at another
  /// place. Returns true if the barrier is complete: `released` then contains the others, and `fiber` continues.
  bool arrive(Fiber& fiber, unsigned threads, Place place, unsigned alive, Released& released);
  /// A thread of the block has ended; `alive` are left.
  void lose(unsigned alive, Released& released);

 private:
  void release(Released& released);

  std::vector<Fiber*> waiting_;
  unsigned threads_ = 0;
  Place place_{};
};

/// The exchanges of one warp. Threads in disjoint masks may exchange at the same time. Thread safety: none.
class Warp {
 public:
  struct Exchange {
    std::uint32_t mask = 0;     ///< 0: unused
    std::uint32_t arrived = 0;  ///< the lanes that take part
    std::uint32_t readers = 0;  ///< the lanes that have not read the values yet; not 0 once it is complete
    std::array<std::uint64_t, kWarpSize> values{};
    std::vector<Fiber*> waiting;
  };

  /// `lanes`: the threads of the warp.
  explicit Warp(std::uint32_t lanes) : alive_(lanes) {}

  /// `fiber` takes part. Throws std::invalid_argument if `mask` does not name its lane. Valid until read().
  Exchange& arrive(Fiber& fiber, std::uint32_t mask, std::uint64_t value, Released& released);
  /// The result of a complete exchange for `fiber`: the lanes that took part, and their values.
  static std::uint32_t read(Exchange& exchange, const Fiber& fiber, std::uint64_t* all);
  /// A thread of the warp has ended.
  void lose(const Fiber& fiber, Released& released);

 private:
  void complete_if_all_are_there(Exchange& exchange, Released& released) const;

  std::uint32_t alive_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

/// "FILE:LINE".
std::string text_of(Place place);
/// "(X,Y,Z)".
std::string text_of(const Index& index);

}  // namespace plugfest::kernels
