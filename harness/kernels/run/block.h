// One block of a running kernel: its threads as fibers on one thread of the operating system.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "harness/kernels/run/held_puts.h"
#include "harness/kernels/run/idle.h"
#include "harness/kernels/run/meeting.h"
#include "harness/kernels/run/store_buffer.h"
#include "harness/kernels/run/trace.h"

namespace plugfest::kernels {

class Grid;

/// Threads that wait at one place.
struct Waiting {
  std::size_t threads = 0;
  std::string first;  ///< "block (0,0,0), thread (1,0,0)"
};

/// Runs the threads of a block one after the other; each runs until it waits. All members but run() are for the threads
/// of the kernel. They end the process with a fault line if the kernel breaks a rule of CUDA.
/// Thread safety: used by the thread that calls run() only.
class Block {
 public:
  /// Block number `number` of `grid`, with threads on `stacks`, one for each. `seed`: seeds the order of the threads;
  /// nullopt: they run in turn. `weak`: holds back stores and puts.
  Block(Grid& grid, unsigned number, const std::vector<std::byte*>& stacks, std::optional<std::uint64_t> seed,
        bool weak);

  /// Returns when all threads have ended.
  void run();

  const Grid& grid() const { return grid_; }
  const Index& index() const { return index_; }
  const Fiber& running() const { return *running_; }
  void* dynamic_shared();

  void barrier(unsigned barrier, unsigned threads, Place place);
  std::uint32_t exchange(std::uint32_t mask, std::uint64_t value, std::uint64_t* all, Place place);
  void loaded(const volatile void* address, std::size_t bytes, std::uint64_t value);
  void yield();
  /// See plugfest_kernel_expect().
  const Expected* expect(const Expected* expected) { return std::exchange(running_->expected, expected); }

  /// Ends the process with a line about an error of the running thread.
  [[noreturn]] void fault(const std::string& reason, Place place) const;

  /// Ends the process: an access of the running thread to `address` has raised a signal. `ucontext`: see interrupted().
  /// `reason`: what is there.
  [[noreturn]] void fault_of_access(const void* address, const std::string& reason, const void* ucontext) const;

  /// Adds what the threads wait for and the frames of their code, and who waits there.
  void add_waiting(std::map<std::pair<std::string, Frames>, Waiting>& places) const;

  /// The block whose thread runs now; null outside kernels.
  static Block* current();
  /// The stores of current() that other blocks do not see yet; null outside kernels, and without Settings::weak.
  static StoreBuffer* current_stores();
  /// The puts of current() that the network does not get yet; null like current_stores().
  static HeldPuts* current_puts();

 private:
  static void enter();
  [[noreturn]] void end();
  void wait(Wait what);
  void resume(Fiber& fiber);
  void resume_all(const Released& released);
  /// The thread that runs next, once one can; null if all have ended.
  Fiber* choose();
  std::string name_of(const Fiber& fiber) const;
  Fiber* next_ready();

  Grid& grid_;
  const Index index_;
  std::optional<std::mt19937_64> order_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_;
  std::vector<Fiber*> ready_;  ///< a ring of as many slots as there are threads
  std::size_t first_ready_ = 0, ready_count_ = 0;
  unsigned alive_;
  Fiber* running_ = nullptr;
  Context caller_ = nullptr;
  Idle idle_;
  std::vector<std::byte> shared_;
  std::optional<StoreBuffer> stores_;  ///< with Settings::weak
  std::optional<HeldPuts> puts_;       ///< with Settings::weak
  Released released_;
};

}  // namespace plugfest::kernels
