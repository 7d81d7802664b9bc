#include "harness/kernels/run/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "harness/kernels/run/fault.h"
#include "harness/kernels/run/grid.h"
#include "harness/kernels/run/stacks.h"

namespace plugfest::kernels {
namespace {

// A thread that reads many different words lets others run after so many loads.
constexpr unsigned kMaxLoads = 4096;
constexpr std::size_t kSharedAlignment = 1024;
// With Settings::weak, a block pauses on average once in kChangesPerPause changes between its threads, for at most
// kLongestPauseUs.
constexpr std::uint64_t kChangesPerPause = 256, kLongestPauseUs = 4000;

thread_local Block* current_block = nullptr;

// What a thread waits for in a loop.
std::string what_of(const Fiber& fiber) {
  const Watches::Watch& word = fiber.watches.latest();
  if (fiber.expected == nullptr)
    return fmt::format("a value other than {} at {}", word.now(), const_cast<const void*>(word.address));
  const auto& [what, number, context, wanted] = *fiber.expected;
  return fmt::format("{}: it is {}, wanted {}", fmt::format(fmt::runtime(what), number, context), word.now(), wanted);
}

Index index_of(unsigned number, const Index& size) {
  return {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

}  // namespace

// Not inline, since the compiler may keep the address of a thread_local variable in a register.
[[gnu::noinline]] Block* Block::current() { return current_block; }

[[gnu::noinline]] StoreBuffer* Block::current_stores() {
  return current_block == nullptr || !current_block->stores_ ? nullptr : &*current_block->stores_;
}

[[gnu::noinline]] HeldPuts* Block::current_puts() {
  return current_block == nullptr || !current_block->puts_ ? nullptr : &*current_block->puts_;
}

Block::Block(Grid& grid, unsigned number, const std::vector<std::byte*>& stacks, std::optional<std::uint64_t> seed,
             bool weak)
    : grid_(grid),
      index_(index_of(number, grid.launch().grid)),
      order_(seed),
      fibers_(stacks.size()),
      ready_(stacks.size()),
      alive_(static_cast<unsigned>(stacks.size())),
      shared_(grid.launch().shared_bytes == 0 ? 0 : grid.launch().shared_bytes + kSharedAlignment) {
  if (weak) {
    stores_.emplace(seed.value_or(number));
    puts_.emplace(seed.value_or(number));
  }
  for (unsigned i = 0; i < fibers_.size(); ++i) {
    Fiber& fiber = fibers_[i];
    fiber.number = i;
    fiber.index = index_of(i, grid.launch().block);
    fiber.stack = stacks[i];
    fiber.context = prepare(stacks[i] + Stacks::kBytes, &Block::enter);
    resume(fiber);
  }
  for (unsigned rest = alive_; rest > 0; rest -= std::min(rest, kWarpSize))
    warps_.emplace_back(rest >= kWarpSize ? 0xffffffffU : (1U << rest) - 1);
}

void Block::run() {
  current_block = this;
  while ((running_ = choose()) != nullptr) plugfest_kernels_switch(&caller_, running_->context);
  if (stores_) stores_->release();
  while (puts_ && !puts_->empty()) {
    std::this_thread::sleep_until(puts_->due());
    puts_->release_due(true, std::chrono::steady_clock::now());
  }
  current_block = nullptr;
}

void Block::enter() {
  Block& block = *current();
  try {
    block.grid_.launch().body(block.grid_.launch().state);
  } catch (const std::exception& error) {
    block.fault(fmt::format("an exception left the kernel: {}", error.what()), {});
  } catch (...) {
    block.fault("an exception left the kernel", {});
  }
  block.end();
}

void Block::end() {
  Fiber& ended = *running_;
  --alive_;
  released_.clear();
  for (Barrier& barrier : barriers_) barrier.lose(alive_, released_);
  warps_[ended.number / kWarpSize].lose(ended, released_);
  resume_all(released_);
  wait(Wait::kForever);
  std::terminate();  // never reached: nobody continues a thread that has ended
}

void* Block::dynamic_shared() {
  if (shared_.empty()) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(shared_.data());
  return shared_.data() + (kSharedAlignment - begin % kSharedAlignment) % kSharedAlignment;
}

void Block::barrier(unsigned barrier, unsigned threads, Place place) {
  if (barrier >= barriers_.size()) fault(fmt::format("barrier {}: a block has barriers 0 to 15", barrier), place);
  released_.clear();
  try {
    const bool complete = barriers_[barrier].arrive(*running_, threads, place, alive_, released_);
    resume_all(released_);
    if (complete) return;
  } catch (const std::invalid_argument& error) {
    fault(error.what(), {});
  }
  running_->barrier = barrier;
  running_->place = place;
  wait(Wait::kBarrier);
}

std::uint32_t Block::exchange(std::uint32_t mask, std::uint64_t value, std::uint64_t* all, Place place) {
  Fiber& fiber = *running_;
  Warp::Exchange* exchange = nullptr;
  released_.clear();
  try {
    exchange = &warps_[fiber.number / kWarpSize].arrive(fiber, mask, value, released_);
  } catch (const std::invalid_argument& error) {
    fault(error.what(), place);
  }
  resume_all(released_);
  if (exchange->readers == 0) {
    fiber.place = place;
    wait(Wait::kExchange);
  }
  return Warp::read(*exchange, fiber, all);
}

void Block::loaded(const volatile void* address, std::size_t bytes, std::uint64_t value) {
  Fiber& fiber = *running_;
  if (fiber.watches.repeats(address, bytes, value))
    wait(Wait::kChange);
  else if (++fiber.loads >= kMaxLoads)
    yield();
}

void Block::yield() {
  resume(*running_);
  wait(Wait::kNothing);
}

void Block::fault(const std::string& reason, Place place) const {
  end_with_fault(fmt::format("kernel {}, {}: {}{}", grid_.launch().name, name_of(*running_), reason,
                             place.file == nullptr ? "" : fmt::format(" ({})", text_of(place))),
                 text_of_frames(frames_of_caller(running_->stack)));
}

void Block::fault_of_access(const void* address, const std::string& reason, const void* ucontext) const {
  if (running_ == nullptr)
    end_with_fault(fmt::format("kernel {}: {}: address {}", grid_.launch().name, reason, address));
  const auto below = reinterpret_cast<std::uintptr_t>(running_->stack) - reinterpret_cast<std::uintptr_t>(address);
  const bool is_overflow = below - 1 < Stacks::kGuard;
  end_with_fault(fmt::format("kernel {}, {}: {}", grid_.launch().name, name_of(*running_),
                             is_overflow ? fmt::format("its stack of {} KiB is full", Stacks::kBytes >> 10)
                                         : fmt::format("{}: address {}", reason, address)),
                 text_of_frames(frames_of_signal(ucontext, running_->stack)));
}

std::string Block::name_of(const Fiber& fiber) const {
  return fmt::format("block {}, thread {}", text_of(index_), text_of(fiber.index));
}

void Block::add_waiting(std::map<std::pair<std::string, Frames>, Waiting>& places) const {
  for (const Fiber& fiber : fibers_) {
    std::string what;
    if (fiber.wait == Wait::kBarrier)
      what = fmt::format("barrier {}", fiber.barrier);
    else if (fiber.wait == Wait::kExchange)
      what = "other threads of the warp";
    else if (fiber.wait == Wait::kChange)
      what = what_of(fiber);
    else
      continue;
    Waiting& waiting = places[{what, frames_of(fiber.context, fiber.stack)}];
    if (waiting.threads++ == 0) waiting.first = name_of(fiber);
  }
}

void Block::wait(Wait what) {
  if (stores_) {
    stores_->settle();
    // Random pauses make blocks and ranks drift apart further than the scheduler does.
    if (order_ && (*order_)() % kChangesPerPause == 0)
      std::this_thread::sleep_for(std::chrono::microseconds((*order_)() % kLongestPauseUs));
    if (!puts_->empty()) puts_->release_due(false, std::chrono::steady_clock::now());
  }
  Fiber& before = *running_;
  before.wait = what;
  before.loads = 0;
  Fiber* const next = ready_count_ > 0 ? next_ready() : nullptr;
  if (next == &before) return;
  running_ = next;
  // Without a next thread, run() waits for one.
  plugfest_kernels_switch(&before.context, next == nullptr ? caller_ : next->context);
}

void Block::resume(Fiber& fiber) {
  fiber.wait = Wait::kNothing;
  ready_[(first_ready_ + ready_count_++) % ready_.size()] = &fiber;
}

void Block::resume_all(const Released& released) {
  for (Fiber* const fiber : released) resume(*fiber);
  if (!released.empty()) grid_.note_progress();
}

Fiber* Block::next_ready() {
  if (order_) {
    const std::size_t chosen = (first_ready_ + (*order_)() % ready_count_) % ready_.size();
    std::swap(ready_[first_ready_], ready_[chosen]);
  }
  Fiber* const fiber = ready_[first_ready_];
  first_ready_ = (first_ready_ + 1) % ready_.size();
  --ready_count_;
  return fiber;
}

Fiber* Block::choose() {
  if (ready_count_ > 0) return next_ready();
  if (alive_ == 0) return nullptr;
  for (;;) {
    bool any = false, changed = false;
    for (Fiber& fiber : fibers_) {
      if (fiber.wait != Wait::kChange) continue;
      any = true;
      // After many looks without a change, all threads run: a loop may also read a clock.
      const bool new_value = fiber.watches.changed();
      if (!new_value && !idle_.long_enough()) continue;
      changed |= new_value;
      fiber.watches.clear();
      resume(fiber);
    }
    if (!any) grid_.end_with_deadlock(*this);
    if (changed) grid_.note_progress();
    if (ready_count_ > 0) {
      idle_.end(changed);
      return next_ready();
    }
    if (puts_ && puts_->release_due(true, std::chrono::steady_clock::now())) grid_.note_progress();
    grid_.note_idle(true);
    idle_.pause();
    grid_.end_if_hanging();
    grid_.note_idle(false);
  }
}

}  // namespace plugfest::kernels
