// The calls to a profiler are counted, and their failures named.
#include "harness/nccl/profiler_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "harness/abi/profiler.h"

namespace plugfest::nccl {
namespace {

using abi::Result;

Result init(void**, std::uint64_t, int*, const char*, int, int, int, abi::Logger) { return Result::kSuccess; }
Result start(void*, void**, void*) { return Result::kInternalError; }
Result stop(void*) { return Result::kSuccess; }
Result state(void*, int, void*) { return Result::kSuccess; }

abi::ProfilerV5 g_profiler = {"Profiler", init, start, stop, state, stop};

TEST(ProfilerCalls, AreCountedUntilTheLastCommunicatorIsFinalized) {
  auto& counted = *static_cast<abi::ProfilerV5*>(count_profiler_calls("ncclProfiler_v5", &g_profiler));
  EXPECT_STREQ(counted.name, "Profiler");
  testing::internal::CaptureStderr();
  void* context = nullptr;
  for (int i = 0; i < 2; ++i) counted.init(&context, 1, nullptr, nullptr, 1, 2, i, nullptr);
  EXPECT_EQ(counted.startEvent(context, &context, nullptr), Result::kInternalError);
  counted.stopEvent(nullptr);
  counted.recordEventState(nullptr, 0, nullptr);
  counted.finalize(context);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  counted.finalize(context);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(line.starts_with(std::string(kProfilerCallsLine) + "7 1 ")) << line;
  EXPECT_TRUE(line.ends_with(" startEvent returned 3\n")) << line;
}

TEST(ProfilerCalls, AreNotCountedForOtherSymbols) {
  for (const char* const symbol : {"ncclNetPlugin_v11", "ncclProfiler_v7"})
    EXPECT_EQ(count_profiler_calls(symbol, &g_profiler), &g_profiler);
}

}  // namespace
}  // namespace plugfest::nccl
