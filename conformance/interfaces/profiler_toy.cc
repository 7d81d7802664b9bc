// A profiler plugin, v1 to v7, that measures how long events take. It prints their number and their mean time when a
// communicator ends.
//
// A handle is a number, not an address: children may name parents that have ended, and the handles of an aborted
// communicator are never stopped. Both are harmless then.
#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>

#include "harness/abi/profiler.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

std::int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

// The events that started last. Event `handle` is in slot handle % size until a later event takes its place, whether it
// has ended or not.
struct Slot {
  std::atomic<std::uint64_t> handle = 0;
  std::atomic<std::int64_t> start_ns = 0;
};
constexpr std::size_t kSlots = 4096;
std::array<Slot, kSlots> slots;
std::atomic<std::uint64_t> started = 0;

struct Communicator {
  abi::Logger logger;
  std::uint64_t started_before;
};
std::atomic<std::uint64_t> stopped = 0;
std::atomic<std::int64_t> stopped_ns = 0;

Slot& slot_of(std::uint64_t handle) { return slots[handle % kSlots]; }

template <int kKnown>
Result init(void** context, int* mask, abi::Logger logger) {
  *mask = kKnown;
  *context = new Communicator{logger, started};
  return Result::kSuccess;
}
template <int kKnown>
Result init_v1(void** context, int* mask) {
  return init<kKnown>(context, mask, nullptr);
}
template <int kKnown>
Result init_v4(void** context, int* mask, const char*, std::uint64_t, int, int, int, abi::Logger logger) {
  return init<kKnown>(context, mask, logger);
}
template <int kKnown>
Result init_v5(void** context, std::uint64_t, int* mask, const char*, int, int, int, abi::Logger logger) {
  return init<kKnown>(context, mask, logger);
}

// `Type`: the type of the first member of a descriptor.
template <int kKnown, typename Type>
Result start_event(void*, void** event, void* descriptor) {
  *event = nullptr;
  const Type type = *static_cast<const Type*>(descriptor);
  if (type == 0 || (type & ~static_cast<Type>(kKnown)) != 0) return Result::kSuccess;
  const std::uint64_t handle = ++started;
  slot_of(handle).start_ns = now_ns();
  slot_of(handle).handle = handle;
  *event = reinterpret_cast<void*>(handle);
  return Result::kSuccess;
}

Result stop_event(void* event) {
  auto handle = reinterpret_cast<std::uint64_t>(event);
  if (handle == 0) return Result::kSuccess;
  Slot& slot = slot_of(handle);
  const std::int64_t start_ns = slot.start_ns;
  if (!slot.handle.compare_exchange_strong(handle, 0)) return Result::kSuccess;
  ++stopped;
  stopped_ns += now_ns() - start_ns;
  return Result::kSuccess;
}

Result record_event_state(void*, int, void*) { return Result::kSuccess; }

Result finalize(void* context) {
  auto* const communicator = static_cast<Communicator*>(context);
  if (communicator->logger != nullptr) {
    const std::uint64_t ended = stopped;
    communicator->logger(
        abi::kLogInfo, abi::kLogProfile, __FILE__, __LINE__,
        "profiler toy: %llu events since init, mean time of all in the process %llu ns",
        static_cast<unsigned long long>(started - communicator->started_before),
        static_cast<unsigned long long>(ended == 0 ? 0 : stopped_ns / static_cast<std::int64_t>(ended)));
  }
  delete communicator;
  return Result::kSuccess;
}

template <typename Table, int kKnown, typename Type, typename Init>
constexpr Table table(Init init) {
  return {"ProfilerToy", init, start_event<kKnown, Type>, stop_event, record_event_state, finalize};
}

}  // namespace

#define PROFILER_TOY(version, Table, Type, init, known)                             \
  extern "C" {                                                                      \
  extern abi::Table ncclProfiler_v##version;                                        \
  abi::Table ncclProfiler_v##version = table<abi::Table, known, Type>(init<known>); \
  }
PROFILER_TOY(1, ProfilerV1, std::uint8_t, init_v1, 0x3f)
PROFILER_TOY(2, ProfilerV1, std::uint8_t, init_v1, 0x3f)
PROFILER_TOY(3, ProfilerV1, std::uint8_t, init_v1, 0xff)
PROFILER_TOY(4, ProfilerV4, std::uint8_t, init_v4, 0xff)
PROFILER_TOY(5, ProfilerV5, std::uint64_t, init_v5, 0xfff)
PROFILER_TOY(6, ProfilerV5, std::uint64_t, init_v5, 0x7fff)
PROFILER_TOY(7, ProfilerV5, std::uint64_t, init_v5, 0xffff)
