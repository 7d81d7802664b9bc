// A profiler plugin, v7, v6 and v4, that counts the events of each communicator and prints the count.
#include <atomic>
#include <cstdint>

#include "harness/abi/profiler.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

struct Communicator {
  abi::Logger logger;
  std::atomic<std::uint64_t> events = 0;
};

Result init(void** context, int* mask, abi::Logger logger) {
  *mask = abi::kProfileGroup | abi::kProfileColl | abi::kProfileP2p;
  *context = new Communicator{logger};
  return Result::kSuccess;
}
Result init_v4(void** context, int* mask, const char*, std::uint64_t, int, int, int, abi::Logger logger) {
  return init(context, mask, logger);
}
Result init_v6(void** context, std::uint64_t, int* mask, const char*, int, int, int, abi::Logger logger) {
  return init(context, mask, logger);
}

Result start_event(void* context, void** event, void*) {
  ++static_cast<Communicator*>(context)->events;
  *event = nullptr;  // the profiler does not record the end of events
  return Result::kSuccess;
}
Result stop_event(void*) { return Result::kSuccess; }
Result record_event_state(void*, int, void*) { return Result::kSuccess; }

Result finalize(void* context) {
  auto* const communicator = static_cast<Communicator*>(context);
  if (communicator->logger != nullptr) {
    communicator->logger(abi::kLogInfo, abi::kLogProfile, __FILE__, __LINE__, "profiler toy: %llu events",
                         static_cast<unsigned long long>(communicator->events));
  }
  delete communicator;
  return Result::kSuccess;
}

constexpr abi::ProfilerV5 kNewest = {"ProfilerToy", init_v6, start_event, stop_event, record_event_state, finalize};

}  // namespace

extern "C" {
extern abi::ProfilerV4 ncclProfiler_v4;
extern abi::ProfilerV5 ncclProfiler_v6, ncclProfiler_v7;
abi::ProfilerV4 ncclProfiler_v4 = {"ProfilerToy", init_v4, start_event, stop_event, record_event_state, finalize};
abi::ProfilerV5 ncclProfiler_v6 = kNewest, ncclProfiler_v7 = kNewest;
}
