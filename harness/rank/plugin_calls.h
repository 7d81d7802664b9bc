// Plugin calls of loops in this process. Their arguments lie between canaries, as for a request `Call`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/plugin/library.h"
#include "harness/rank/memory.h"
#include "harness/rank/thread.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

/// Answer of a call that stores one pointer.
struct PointerAnswer : CallAnswer {
  std::uint64_t value = 0;
  bool untouched = false;
};
struct TestAnswer : CallAnswer {
  std::int32_t done = 0;
  std::array<std::int32_t, kSizes> sizes{};
};

struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint64_t mhandle = 0;
  std::uint64_t phandle = 0;
};

/// `…_slot`, `size_fill`: the value of an output before the call. `start_ns` of an answer is 0 when the plugin has no
/// such function.
namespace calls {
CallAnswer init();
CallAnswer devices();
/// Registers the whole pages that hold the memory, as NCCL does.
PointerAnswer reg_mr(std::uint64_t comm, std::uint64_t address, std::uint64_t size, std::uint64_t mhandle_slot);
CallAnswer dereg_mr(std::uint64_t comm, std::uint64_t mhandle);
PointerAnswer isend(std::uint64_t comm, const Piece& piece, std::uint64_t request_slot);
PointerAnswer irecv(std::uint64_t comm, const std::vector<Piece>& pieces, std::uint64_t request_slot);
TestAnswer test(std::uint64_t request, std::int32_t done_slot, std::int32_t size_fill);
CallAnswer irecv_consumed(std::uint64_t comm, std::int32_t n, std::uint64_t request);
/// Until the comm is closed, only the caller calls irecvConsumed for its receives; otherwise `irecv` does, as NCCL
/// would (see UnconsumedReceives). Returns the problem of an earlier receive; "" if there is none.
std::string leave_consumption_to_caller(std::uint64_t comm);
CallAnswer set_net_attributes(std::uint64_t context, const std::vector<std::int32_t>& attributes);
CallAnswer close(CommKind kind, std::uint64_t comm);
}  // namespace calls

/// The words of a call, one for each parameter: all are integers and pointers, each of which LP64 ABIs pass as one
/// word, with unused high bits.
inline constexpr std::size_t kMaxParameters = 15;
using Words = std::array<std::uint64_t, kMaxParameters>;
/// Calls a function with the first `count` words.
abi::Result call_words(plugin::Library::AnyFunction function, const Words& words, std::size_t count);

/// Ends a measuring loop with a message.
struct MeasurementFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A call of a measuring loop, without canaries and copies, because the measured time would include them. Marks the
/// plugin function that this thread executes, for crash reports. Errors: MeasurementFailed unless it returned Success.
template <typename Call>
void call_plugin(const char* name, const Call& call) {
  std::atomic<const char*>& mark = this_thread().call;
  mark.store(name, std::memory_order_relaxed);
  const auto code = static_cast<std::int32_t>(call());
  mark.store(nullptr, std::memory_order_relaxed);
  if (code != 0) throw MeasurementFailed(fmt::format("{} returned {}", name, wire::code_text(code)));
}

/// Calls `turn`, which returns whether it made progress, until `condition` holds. Sets `stalled` and ends with
/// MeasurementFailed(otherwise) if no turn makes progress for the time of `stall`.
template <typename Condition, typename Turn>
void wait_until(const Condition& condition, const char* otherwise, StallTimer& stall, bool& stalled, const Turn& turn) {
  while (!condition()) {
    if (turn()) {
      stall.restart();
    } else if (stall.expired()) {
      stalled = true;
      throw MeasurementFailed(otherwise);
    }
  }
  stall.restart();
}

/// A duration for a message. At most 4 s.
inline std::uint32_t short_duration(std::int64_t nanoseconds) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(nanoseconds, UINT32_MAX));
}

/// The median of durations; 0 without any.
inline std::uint32_t median_duration(std::vector<std::uint32_t> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace plugfest::rank
