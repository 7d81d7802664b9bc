#include "harness/kernels/run/grid.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "harness/kernels/run/fault.h"
#include "harness/kernels/run/stacks.h"

namespace plugfest::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// Limits of devices of compute capability 9.0. Source: CUDA C++ Programming Guide 13.0, section 17.2.
constexpr unsigned kMaxBlockThreads = 1024;
constexpr std::size_t kMaxSharedBytes = std::size_t{227} << 10;
// Threads of one kernel that exist at a time. Further blocks begin when earlier ones have ended, as on a GPU.
constexpr unsigned kMaxThreads = 24'576;
// The number of resident blocks of an H100: 132 multiprocessors with 32 blocks each.
constexpr unsigned kMaxResidentBlocks = 132 * 32;
// How long a kernel makes no progress before another rank's failure ends it, and how often it looks for one.
constexpr std::chrono::milliseconds kPatience{1000}, kLookInterval{100};
constexpr std::size_t kHandlerStackBytes = std::size_t{256} << 10;

// The value of an environment variable; nothing if it is not set.
std::optional<std::uint64_t> number_from(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text, &end, 10);
  if (*end != '\0') throw std::invalid_argument(fmt::format("{}=\"{}\": expected a number", name, text));
  return number;
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.seed = number_from(kSeedVariable);
  if (const auto seconds = number_from(kTimeoutVariable); seconds) settings.limit = std::chrono::seconds(*seconds);
  if (const auto peers = number_from(kPeersVariable); peers) settings.peers = static_cast<int>(*peers);
  settings.weak = is_weak();
  return settings;
}

bool Settings::is_weak() {
  const char* const text = std::getenv(kWeakVariable);
  return text != nullptr && std::string_view(text) == "1";
}

Grid::Grid(const Launch& launch, const Settings& settings)
    : launch_(launch),
      settings_(settings),
      blocks_(launch.grid.x * launch.grid.y * launch.grid.z),
      progress_(Clock::now().time_since_epoch().count()) {}

int Grid::check(const Launch& launch) {
  constexpr int kInvalidConfiguration = 9;
  const Index &block = launch.block, &grid = launch.grid;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool possible = threads >= 1 && block.x <= kMaxBlockThreads && block.y <= kMaxBlockThreads && block.z <= 64 &&
                        threads <= kMaxBlockThreads && launch.shared_bytes <= kMaxSharedBytes && grid.x >= 1 &&
                        grid.x <= 0x7fffffff && grid.y >= 1 && grid.y <= 65'535 && grid.z >= 1 && grid.z <= 65'535;
  // More blocks than 32 bits count are refused.
  return possible && std::uint64_t{grid.x} * grid.y * grid.z <= 0xffffffff ? 0 : kInvalidConfiguration;
}

void Grid::run() {
  const unsigned threads = launch_.block.x * launch_.block.y * launch_.block.z;
  std::vector<std::vector<std::byte*>> stacks(
      std::min({blocks_, std::max(1U, kMaxThreads / threads), kMaxResidentBlocks}));
  for (std::vector<std::byte*>& of_block : stacks) of_block = the_stacks().take(threads);
  std::vector<std::thread> workers;
  std::exception_ptr error;
  try {
    for (const std::vector<std::byte*>& of_block : stacks) workers.emplace_back([&] { run_blocks(of_block); });
  } catch (const std::system_error&) {
    // The threads that have started also run the other blocks.
    if (workers.empty()) error = std::current_exception();
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::vector<std::byte*>& of_block : stacks) the_stacks().give_back(of_block);
  if (error) std::rethrow_exception(error);
}

void Grid::run_blocks(const std::vector<std::byte*>& stacks) {
  // The default timer slack would lengthen each sleep by 50 microseconds.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  // The handler of a fault needs a stack even if a CUDA thread's stack is full.
  const auto of_handler = std::make_unique_for_overwrite<std::byte[]>(kHandlerStackBytes);
  const stack_t handler_stack = {.ss_sp = of_handler.get(), .ss_flags = 0, .ss_size = kHandlerStackBytes};
  ::sigaltstack(&handler_stack, nullptr);
  for (unsigned number = next_++; number < blocks_; number = next_++) {
    std::optional<std::uint64_t> seed = settings_.seed;
    if (seed) *seed += number;
    Block block(*this, number, stacks, seed, settings_.weak);
    {
      const std::lock_guard lock(mutex_);
      running_.insert(&block);
    }
    block.run();
    const std::lock_guard lock(mutex_);
    running_.erase(&block);
    note_progress();
  }
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
}

void Grid::note_progress() { progress_ = Clock::now().time_since_epoch().count(); }

void Grid::end_if_hanging() {
  const auto since = Clock::now() - Clock::time_point(Clock::duration(progress_.load()));
  const bool expired = since >= settings_.limit;
  if (!expired && !(since >= kPatience && peer_has_failed())) return;
  const std::lock_guard lock(mutex_);
  // Another block may be in the middle of a long computation.
  if (static_cast<std::size_t>(idle_.load()) < running_.size()) return;
  end(expired ? fmt::format("no thread has made progress for {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(since).count())
              : "another rank has failed",
      running_);
}

bool Grid::peer_has_failed() {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (!settings_.peers || Clock::duration(now - peers_seen_) < kLookInterval) return false;
  peers_seen_ = now;
  pollfd peers = {*settings_.peers, POLLIN, 0};
  return ::poll(&peers, 1, 0) > 0 && (peers.revents & POLLNVAL) == 0;
}

void Grid::end_with_deadlock(const Block& block) { end("all threads of a block wait for each other", {&block}); }

void Grid::end(const std::string& reason, const std::set<const Block*>& blocks) const {
  // All threads of these blocks wait, so the blocks do not change now.
  std::map<std::pair<std::string, Frames>, Waiting> places;
  for (const Block* const block : blocks) block->add_waiting(places);
  std::string text;
  for (const auto& [place, waiting] : places)
    text += fmt::format("  {} waits for {}{}\n{}", waiting.first, place.first,
                        waiting.threads == 1 ? "" : fmt::format(" ({} threads do)", waiting.threads),
                        text_of_frames(place.second));
  end_with_fault(fmt::format("kernel {}{}{}", launch_.name, kHangs, reason), text);
}

}  // namespace plugfest::kernels
