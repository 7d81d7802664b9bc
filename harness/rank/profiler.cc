// The profiler callbacks that the plugin gets in init: RecordProfiler.
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

// More than any rule needs; bounds the answer.
constexpr std::size_t kMaxCalls = 8192;
// The size of ncclProfilerNetIbDescr_v1_t, the largest structure that profilers know, and of the structure of sockets.
constexpr std::array<std::uint32_t, 3> kDataSizes = {40, 24, 1};

std::atomic<bool> profiler_calls_recorded{false};
std::atomic<std::uint64_t> next_event_handle{0x1000};
std::mutex profiler_mutex;
RecordProfiler profiler_answers;
auto& profiler_record = *new RecordProfilerAnswer;

// The kernel refuses addresses that a direct access could not use.
bool read_safely(const void* from, void* to, std::size_t size) {
  iovec local{to, size};
  iovec remote{const_cast<void*>(from), size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}
bool write_safely(const void* from, void* to, std::size_t size) {
  iovec local{const_cast<void*>(from), size};
  iovec remote{to, size};
  return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

std::uint32_t readable_bytes(const void* data) {
  std::array<char, kDataSizes.front()> bytes;
  for (const std::uint32_t size : kDataSizes)
    if (data != nullptr && read_safely(data, bytes.data(), size)) return size;
  return 0;
}

abi::Result record_call(ProfilerCall call, void** event) {
  const ThreadState* const thread = this_thread_or_null();
  const char* const function = thread == nullptr ? nullptr : thread->call.load(std::memory_order_relaxed);
  call.function = function == nullptr ? "" : function;
  call.readable_bytes = readable_bytes(pointer(call.data));

  const std::lock_guard lock(profiler_mutex);
  std::uint64_t handle = 0;
  call.accessible = read_safely(event, &handle, sizeof handle) && write_safely(&handle, event, sizeof handle);
  call.handle_before = handle;
  if (call.accessible && call.type == abi::kProfilerNetStart && profiler_answers.stores_handles) {
    handle = next_event_handle.fetch_add(16, std::memory_order_relaxed);
    write_safely(&handle, event, sizeof handle);
  }
  call.handle_after = handle;
  if (profiler_record.calls.size() < kMaxCalls)
    profiler_record.calls.push_back(std::move(call));
  else
    ++profiler_record.left_out;
  return static_cast<abi::Result>(profiler_answers.result);
}

template <std::uint32_t kNumber>
abi::Result profile(void** event, int type, void* parent, std::int64_t plugin_id, void* data) {
  if (profiler_calls_recorded.load(std::memory_order_relaxed)) {
    ProfilerCall call;
    call.callback = kNumber;
    call.at_ns = now_ns();
    call.event = number(event);
    call.type = type;
    call.phandle = number(parent);
    call.plugin_id = plugin_id;
    call.data = number(data);
    return record_call(std::move(call), event);
  }
  if (type == abi::kProfilerNetStart && event != nullptr)
    *event = pointer(next_event_handle.fetch_add(16, std::memory_order_relaxed));
  return abi::Result::kSuccess;
}

}  // namespace

abi::ProfilerCallback profiler_callback(std::uint64_t number) {
  static constexpr std::array<abi::ProfilerCallback, kProfilerCallbacks> kCallbacks = {profile<1>, profile<2>};
  return kCallbacks.at(number - 1);
}

RecordProfilerAnswer execute(const RecordProfiler& request) {
  const std::lock_guard lock(profiler_mutex);
  profiler_answers = request;
  profiler_calls_recorded.store(request.records, std::memory_order_relaxed);
  return std::exchange(profiler_record, {});
}

}  // namespace plugfest::rank
