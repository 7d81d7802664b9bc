// Plugin calls of the measuring loops: without canaries and copies, whose time would count.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "harness/abi/base.h"
#include "harness/rank/memory.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

inline constexpr std::size_t kMaxBuffers = 64;

/// Ends a measuring loop with a message.
struct MeasurementFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Marks the plugin function that this thread executes, for crash reports. Errors: MeasurementFailed unless it returned
/// Success.
template <class Call>
void call_plugin(const char* name, const Call& call) {
  std::atomic<const char*>& mark = this_thread().call;
  mark.store(name, std::memory_order_relaxed);
  const auto code = static_cast<std::int32_t>(call());
  mark.store(nullptr, std::memory_order_relaxed);
  if (code != 0) throw MeasurementFailed(fmt::format("{} returned {}", name, code_text(code)));
}

/// Memory registered on one comm: `count` buffers of `size` bytes, each page touched.
class MeasuredMemory {
 public:
  MeasuredMemory(void* comm, std::size_t size, std::size_t count)
      : comm_(comm),
        stride_((size + 63) / 64 * 64),
        memory_(map_guarded(std::max<std::size_t>(stride_ * count, 1), false)) {
    auto* bytes = static_cast<volatile std::byte*>(pointer(memory_.address));
    for (std::size_t at = 0; at < stride_ * count; at += page_size()) bytes[at] = std::byte{1};
    call_plugin("regMr", [&] {
      return subject().reg_mr(comm_, pointer(memory_.address), std::max<std::size_t>(stride_ * count, 1),
                              abi::kPointerHost, &mhandle_);
    });
  }
  MeasuredMemory(MeasuredMemory&& other) noexcept = delete;
  /// Keeps the memory mapped: after a failure, operations may be in flight.
  ~MeasuredMemory() = default;

  void release() {
    call_plugin("deregMr", [&] { return subject().dereg_mr(comm_, mhandle_); });
    unmap_guarded(memory_);
  }
  void* buffer(std::size_t index) const { return static_cast<std::byte*>(pointer(memory_.address)) + index * stride_; }
  void* mhandle() const { return mhandle_; }

 private:
  void* comm_;
  std::size_t stride_;
  Mapping memory_;
  void* mhandle_ = nullptr;
};

/// Sends the first buffer. Returns null if the plugin defers the send.
inline void* post_send(void* comm, const MeasuredMemory& memory, std::size_t size, int tag) {
  void* request = nullptr;
  call_plugin("isend",
              [&] { return subject().isend(comm, memory.buffer(0), size, tag, memory.mhandle(), nullptr, &request); });
  return request;
}

/// Receives into `count` buffers from `first` on, with the tags 0 to count-1. Returns null if the plugin defers it.
inline void* post_receive(void* comm, const MeasuredMemory& memory, std::size_t first, std::size_t size,
                          std::size_t count) {
  std::array<void*, kMaxBuffers> data, mhandles, phandles = {};
  std::array<std::size_t, kMaxBuffers> sizes;
  std::array<int, kMaxBuffers> tags;
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = memory.buffer(first + i);
    sizes[i] = size;
    tags[i] = static_cast<int>(i);
    mhandles[i] = memory.mhandle();
  }
  void* request = nullptr;
  call_plugin("irecv", [&] {
    return subject().irecv(comm, static_cast<int>(count), data.data(), sizes.data(), tags.data(), mhandles.data(),
                           phandles.data(), &request);
  });
  return request;
}

inline bool is_done(void* request) {
  int done = 0;
  std::array<int, 64> sizes = {};
  call_plugin("test", [&] { return subject().test(request, &done, sizes.data()); });
  return done != 0;
}

}  // namespace plugfest::rank
