#include "harness/trace/recorder/calls.h"

#include <exception>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "harness/abi/net.h"
#include "harness/trace/recorder/processor.h"
#include "harness/trace/recorder/records.h"
#include "harness/trace/recorder/writer.h"

namespace plugfest::trace {
namespace {

using abi::Result;

// A send or receive that the plugin has accepted, until its test reports that it is done.
struct Request {
  std::vector<std::uint64_t> events;  // one for each step
  std::uint64_t tests = 0;
  std::int64_t inside_ns = 0;  // time in the plugin
};

// The proxy's thread posts its requests and tests them, so each thread knows its own.
struct Thread {
  // The call whose steps on_posted() tells next.
  void* request = nullptr;
  const char* function = nullptr;
  std::uint64_t bytes = 0, refusals = 0;
  std::int64_t start_ns = 0;

  std::unordered_map<void*, std::uint64_t> refused;  // calls without a request since the last one with one, by comm
  std::unordered_map<void*, Request> requests;
};

Thread& thread() {
  thread_local Thread mine;
  return mine;
}

void on_call(const char* function, void* comm, Result result, void* request, std::uint64_t bytes,
             std::int64_t start_ns) noexcept {
  try {
    Thread& mine = thread();
    mine.request = nullptr;
    if (result != Result::kSuccess) return;
    std::uint64_t& refused = mine.refused[comm];
    if (request == nullptr) {
      ++refused;
      return;
    }
    mine.request = request;
    mine.function = function;
    mine.bytes = bytes;
    mine.refusals = refused;
    mine.start_ns = start_ns;
    refused = 0;
    mine.requests[request] = {.events = {}, .tests = 0, .inside_ns = monotonic_ns() - start_ns};
  } catch (const std::exception&) {
    // Without memory, the call is not recorded.
  }
}

// `over`: the request is done, or has failed.
void on_test(void* request, bool over, std::int64_t start_ns) noexcept {
  sample_processor(start_ns);
  Thread& mine = thread();
  mine.request = nullptr;
  const auto found = mine.requests.find(request);
  if (found == mine.requests.end()) return;  // a request of iflush
  ++found->second.tests;
  found->second.inside_ns += monotonic_ns() - start_ns;
  if (!over) return;
  for (const std::uint64_t event : found->second.events) {
    Records records({monotonic_ns(), event, 0, RecordKind::kStop, 0, 0, 0});
    records.add(Key::kTests, found->second.tests);
    records.add(Key::kPluginNs, static_cast<std::uint64_t>(found->second.inside_ns));
    records.write();
  }
  mine.requests.erase(found);
}

// The functions of a version's table.
template <typename Net>
struct Recorded {
  static inline Net original, table;

  template <typename... Arguments>
  static Result isend(Arguments... arguments) {
    const auto all = std::tie(arguments...);
    const std::int64_t start = monotonic_ns();
    const Result result = original.isend(arguments...);
    on_call("isend", std::get<0>(all), result, *std::get<sizeof...(Arguments) - 1>(all),
            static_cast<std::uint64_t>(std::get<2>(all)), start);
    return result;
  }
  template <typename... Arguments>
  static Result irecv(Arguments... arguments) {
    const auto all = std::tie(arguments...);
    std::uint64_t bytes = 0;
    for (int i = 0; i < std::get<1>(all); ++i) bytes += static_cast<std::uint64_t>(std::get<3>(all)[i]);
    const std::int64_t start = monotonic_ns();
    const Result result = original.irecv(arguments...);
    on_call("irecv", std::get<0>(all), result, *std::get<sizeof...(Arguments) - 1>(all), bytes, start);
    return result;
  }
  static Result test(void* request, int* done, int* sizes) {
    const std::int64_t start = monotonic_ns();
    const Result result = original.test(request, done, sizes);
    on_test(request, result != Result::kSuccess || *done != 0, start);
    return result;
  }

  template <typename... Arguments>
  static auto isend_like(Result (*)(Arguments...)) {
    return isend<Arguments...>;
  }
  template <typename... Arguments>
  static auto irecv_like(Result (*)(Arguments...)) {
    return irecv<Arguments...>;
  }
  static void* take(void* given) {
    static bool taken = false;
    if (taken) return given;
    taken = true;
    original = table = *static_cast<const Net*>(given);
    table.isend = isend_like(original.isend);
    table.irecv = irecv_like(original.irecv);
    table.test = test;
    return &table;
  }
};

}  // namespace

void* record_calls(const char* symbol, void* table) noexcept {
  const std::string_view name = symbol;
#define PLUGFEST_TAKE(version) \
  if (name == "ncclNetPlugin_v" #version) return Recorded<abi::v##version::Net>::take(table);
  PLUGFEST_NET_VERSIONS(PLUGFEST_TAKE)
#undef PLUGFEST_TAKE
  return table;
}

void on_posted(std::uint64_t step) noexcept {
  try {
    Thread& mine = thread();
    const auto found = mine.requests.find(mine.request);
    if (mine.request == nullptr || found == mine.requests.end()) return;
    const std::uint64_t event = Writer::get().next_event();
    Records records({mine.start_ns, event, step, RecordKind::kStart, kPluginCall, 0, 0});
    records.add(Key::kFunction, mine.function);
    records.add(Key::kBytes, mine.bytes);
    records.add(Key::kRefusals, mine.refusals);
    records.write();
    found->second.events.push_back(event);
  } catch (const std::exception&) {
    // Without memory, the call is not recorded.
  }
}

}  // namespace plugfest::trace
