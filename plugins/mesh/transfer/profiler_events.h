// What NCCL's profiler learns of the work of queue pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/abi/profiler.h"

namespace mesh {

/// The profiler's events of the requests of one comm: at most 32 of each, one for each part of its data. Not
/// thread-safe. Allocates at the first event, so a comm without a profiler costs nothing.
class ProfilerEvents {
 public:
  using Event = plugfest::abi::ProfilerQueuePairEvent;
  using Callback = plugfest::abi::ProfilerCallback;

  /// `requests`: maximum number of requests. `parts`: maximum number of events of a request.
  ProfilerEvents(std::size_t requests, std::size_t parts) : requests_(requests), parts_(parts) {}

  /// Null: no event is reported.
  void set_callback(Callback callback) { callback_ = callback; }
  bool enabled() const { return callback_ != nullptr; }

  /// Starts an event under `parent`, the phandle that NCCL passed; null starts none. Precondition: the event of this
  /// part is not started.
  void start(std::size_t request, std::size_t part, void* parent, const Event& event) {
    if (parent == nullptr || callback_ == nullptr) return;
    if (started_.empty()) {
      started_.resize(requests_);
      handles_.resize(requests_ * parts_);
    }
    Event passed = event;
    void*& handle = handles_[request * parts_ + part];
    handle = nullptr;
    callback_(&handle, plugfest::abi::kProfilerNetStart, parent, plugfest::abi::kProfilerQueuePairId, &passed);
    started_[request] |= 1u << part;
  }
  /// Stops the event if it is started.
  void stop(std::size_t request, std::size_t part) {
    if (started_.empty() || (started_[request] >> part & 1) == 0) return;
    started_[request] &= ~(1u << part);
    callback_(&handles_[request * parts_ + part], plugfest::abi::kProfilerNetStop, nullptr,
              plugfest::abi::kProfilerQueuePairId, nullptr);
  }
  /// Stops all events of a request.
  void stop_all(std::size_t request) {
    if (started_.empty()) return;
    for (std::size_t part = 0; started_[request] != 0; ++part) stop(request, part);
  }

 private:
  const std::size_t requests_;
  const std::size_t parts_;
  Callback callback_ = nullptr;
  std::vector<std::uint32_t> started_;  ///< one bit per event; empty before the first event
  std::vector<void*> handles_;
};

}  // namespace mesh
