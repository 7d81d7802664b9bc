#include "harness/nccl/profiler_calls.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "fabric/system/clock.h"
#include "harness/abi/profiler.h"

namespace plugfest::nccl {
namespace {

using abi::Result;

constexpr const char* kNames[] = {"init", "startEvent", "stopEvent", "recordEventState", "finalize"};
enum Function : int { kInit, kStart, kStop, kState, kFinalize };

std::atomic<std::uint64_t> g_calls = 0, g_failed = 0;
std::atomic<std::int64_t> g_nanoseconds = 0;
// The function and the result of the first failure; 0: none.
std::atomic<int> g_first = 0;
std::atomic<int> g_open = 0;  // communicators

void note(Function function, Result result, Nanoseconds duration) {
  ++g_calls;
  g_nanoseconds += duration;
  if (result == Result::kSuccess) return;
  ++g_failed;
  int none = 0;
  g_first.compare_exchange_strong(none, static_cast<int>(result) << 3 | function);
}

void print() {
  const int first = g_first;
  std::fprintf(stderr, "%s%llu %llu %lld %s returned %d\n", kProfilerCallsLine,
               static_cast<unsigned long long>(g_calls), static_cast<unsigned long long>(g_failed),
               static_cast<long long>(g_nanoseconds), kNames[first & 7], first >> 3);
}

// The functions of a version's table.
template <typename Table>
struct Counted {
  static inline Table original, table;

  template <Function kFunction, auto kMember, typename... Arguments>
  static Result call(Arguments... arguments) {
    const Nanoseconds start = now_ns();
    const Result result = (original.*kMember)(arguments...);
    note(kFunction, result, now_ns() - start);
    if (kFunction == kInit) ++g_open;
    if (kFunction == kFinalize && --g_open == 0) print();
    return result;
  }
  template <Function kFunction, auto kMember, typename... Arguments>
  static void count(Result (*Table::*)(Arguments...)) {
    if (original.*kMember != nullptr) table.*kMember = call<kFunction, kMember, Arguments...>;
  }
  static void* take(void* given) {
    original = table = *static_cast<const Table*>(given);
    count<kInit, &Table::init>(&Table::init);
    count<kStart, &Table::startEvent>(&Table::startEvent);
    count<kStop, &Table::stopEvent>(&Table::stopEvent);
    count<kState, &Table::recordEventState>(&Table::recordEventState);
    count<kFinalize, &Table::finalize>(&Table::finalize);
    return &table;
  }
};

}  // namespace

void* count_profiler_calls(const char* symbol, void* table) noexcept {
  const std::string_view name = symbol;
  if (name == "ncclProfiler_v1" || name == "ncclProfiler_v2" || name == "ncclProfiler_v3")
    return Counted<abi::ProfilerV1>::take(table);
  if (name == "ncclProfiler_v4") return Counted<abi::ProfilerV4>::take(table);
  if (name == "ncclProfiler_v5" || name == "ncclProfiler_v6") return Counted<abi::ProfilerV5>::take(table);
  return table;
}

}  // namespace plugfest::nccl
