// One CUDA thread: a fiber on the thread of its block, and what it waits for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "harness/kernels/include/plugfest_kernel.h"
#include "harness/kernels/run/context.h"

namespace plugfest::kernels {

/// The loads of one thread that repeat: which words it reads again and again, and the values that it saw.
/// Thread safety: none; the block of the thread owns it.
class Watches {
 public:
  /// Notes a load. True if the last `kRepeats` loads saw nothing new, so that the thread has to wait for a change.
  bool repeats(const volatile void* address, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = 0; i < used_; ++i) {
      Watch& watch = watches_[i];
      if (watch.address != address) continue;
      if (watch.value != value || watch.bytes != bytes) {
        watch.value = value;
        watch.bytes = bytes;
        repeats_ = 0;
        return false;
      }
      if (++repeats_ < kRepeats) return false;
      repeats_ = 0;
      return true;
    }
    if (used_ < watches_.size()) ++used_;
    watches_[next_] = {address, bytes, value};
    next_ = (next_ + 1) % watches_.size();
    repeats_ = 0;
    return false;
  }

  /// Whether a word has another value than the one that the thread saw.
  bool changed() const {
    for (std::size_t i = 0; i < used_; ++i)
      if (watches_[i].now() != watches_[i].value) return true;
    return false;
  }

  /// Forgets all watched words.
  void clear() { used_ = next_ = repeats_ = 0; }

  struct Watch {
    const volatile void* address = nullptr;
    std::size_t bytes = 0;
    std::uint64_t value = 0;

    std::uint64_t now() const {
      switch (bytes) {
        case 1:
          return *static_cast<const volatile std::uint8_t*>(address);
        case 2:
          return *static_cast<const volatile std::uint16_t*>(address);
        case 4:
          return *static_cast<const volatile std::uint32_t*>(address);
        default:
          return *static_cast<const volatile std::uint64_t*>(address);
      }
    }
  };
  const Watch& latest() const { return watches_[(next_ + watches_.size() - 1) % watches_.size()]; }

 private:
  static constexpr unsigned kRepeats = 16;

  std::array<Watch, 4> watches_;
  std::size_t used_ = 0, next_ = 0;
  unsigned repeats_ = 0;
};

enum class Wait {
  kNothing,   ///< runs, or may run
  kBarrier,   ///< for other threads of the block
  kExchange,  ///< for other threads of the warp
  kChange,    ///< for another value of a word that it reads again and again
  kForever,   ///< has ended
};

struct Fiber {
  Index index{};        ///< threadIdx
  unsigned number = 0;  ///< in its block
  Context context = nullptr;
  std::byte* stack = nullptr;
  Wait wait = Wait::kNothing;
  unsigned barrier = 0;  ///< with Wait::kBarrier
  Place place{};         ///< with Wait::kBarrier and kExchange
  Watches watches;
  const Expected* expected = nullptr;  ///< on the stack of the thread
  unsigned loads = 0;                  ///< since it ran last

  unsigned lane() const { return number % kWarpSize; }
};

}  // namespace plugfest::kernels
