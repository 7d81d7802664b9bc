#include "harness/rank/workloads/replay/registrations.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "harness/rank/memory.h"
#include "harness/rank/pattern.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kMemory = 1024 * 1024;
constexpr std::size_t kMostRegistered = 12;
constexpr std::uint64_t kLongestPauseUs = 400;

std::mutex ends_mutex;
std::condition_variable ended;
std::uint64_t last_ended_run = 0;

/// Waits; true if the replay has ended.
bool has_ended(std::uint64_t run, std::uint64_t microseconds) {
  std::unique_lock lock(ends_mutex);
  return ended.wait_for(lock, std::chrono::microseconds(microseconds), [run] { return last_ended_run >= run; });
}

/// From a few bytes, of which several registrations share a page, to many pages.
Range draw_range(const Mapping& memory, std::uint64_t number) {
  const std::uint64_t size = 1 + (number >> 20) % (std::uint64_t{1} << (6 + number % 14));
  return {memory.address + (number >> 40) % (kMemory - size), size};
}

struct Registered {
  std::uint64_t comm = 0;
  std::uint64_t mhandle = 0;
};

}  // namespace

ReplayEndNotice::~ReplayEndNotice() {
  {
    const std::lock_guard lock(ends_mutex);
    last_ended_run = run_;
  }
  ended.notify_all();
}

ReplayRegistrationsAnswer execute(const ReplayRegistrations& request) {
  ReplayRegistrationsAnswer answer;
  answer.start_ns = now_ns();
  const Mapping memory = map_guarded(kMemory, false);
  std::deque<Registered> registered;
  StallTimer alive(request.timeout_ns);
  const auto remove_oldest = [&] {
    const Registered oldest = registered.front();
    registered.pop_front();
    const CallAnswer call = calls::dereg_mr(oldest.comm, oldest.mhandle);
    if (call.code != 0) {
      answer.broken =
          fmt::format("deregMr(comm 0x{:x}) during transfers returned {}", oldest.comm, code_text(call.code));
    }
  };
  for (std::uint64_t draws = 0; answer.broken.empty() && !request.comms.empty();) {
    const std::uint64_t number = mix(request.seed, draws++);
    if (has_ended(request.run, number % kLongestPauseUs)) break;
    alive.restart();
    if (registered.size() == kMostRegistered || (!registered.empty() && (number >> 8) % 3 == 0)) {
      remove_oldest();
      continue;
    }
    const Range range = draw_range(memory, mix(request.seed, draws++));
    const std::uint64_t comm = request.comms[(number >> 16) % request.comms.size()];
    const PointerAnswer call = calls::reg_mr(comm, range.address, range.size, 0);
    if (call.code != 0) {
      answer.broken = fmt::format("regMr(comm 0x{:x}, {} bytes) during transfers returned {}", comm, range.size,
                                  code_text(call.code));
      break;
    }
    registered.push_back({comm, call.value});
    ++answer.registrations;
  }
  while (answer.broken.empty() && !registered.empty()) remove_oldest();
  if (answer.broken.empty()) unmap_guarded(memory);
  answer.end_ns = now_ns();
  return answer;
}

}  // namespace plugfest::rank
