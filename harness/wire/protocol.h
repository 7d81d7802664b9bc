// Messages between controller and rank: one request and one answer for each operation.
//
// A rank has a control channel (descriptor kControlFd) and one channel for each of its threads. A thread executes the
// requests of its channel in order and answers each of them. Every operation works on every thread. The rank's process
// ends when its control channel closes.
//
// To add an operation: declare its request and its answer with their fields in process.h, memory.h, calls.h or
// workloads.h, add a line to PLUGFEST_REQUESTS, and define `execute` for the request in harness/rank.
//
// Pointers of the rank's address space travel as numbers. The rank trusts the controller. The controller does not
// trust the rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "harness/wire/calls.h"
#include "harness/wire/exported_memory.h"
#include "harness/wire/fields.h"
#include "harness/wire/process.h"
#include "harness/wire/replay.h"
#include "harness/wire/workloads.h"

namespace plugfest::wire {

/// Descriptors of a new rank: its control channel, the channel of kMainThread, the pipe for log lines.
inline constexpr int kControlFd = 3;
inline constexpr int kMainFd = 4;
inline constexpr int kLogFd = 5;

/// Threads by NCCL's use of them (TH-01): init; connections; transfers. kMemoryThread and kWatchThread make no plugin
/// call. Only kMainThread exists from the start; any other name starts a further thread.
inline constexpr const char* kMainThread = "main";
inline constexpr const char* kServiceThread = "svc";
inline constexpr const char* kProgressThread = "prog";
inline constexpr const char* kMemoryThread = "memory";
inline constexpr const char* kWatchThread = "watch";

/// FrameHeader::kind of requests on the control channel.
enum class ControlOperation : std::uint32_t {
  kStartThread,  ///< StartThread, with the thread's channel as descriptor → nothing
  kFunctionOn,   ///< Text: a thread's name → Text: the plugin function that it runs, "" for none
};

/// FrameHeader::kind of messages from a rank.
enum class Answer : std::uint32_t {
  kDone,      ///< the operation's answer
  kFailed,    ///< Text: why the harness could not execute the operation
  kRefused,   ///< Refusal
  kProgress,  ///< nothing: a workload makes progress; its answer follows later
  kCrash,     ///< Crash, without a request, on the control channel
};

/// A result code for the user: "ncclInternalError (3)", "ncclSuccess", "result 9".
inline std::string code_text(std::int32_t code) {
  static constexpr std::array kNames = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                        "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                        "ncclRemoteError",   "ncclInProgress"};
  if (code < 0 || static_cast<std::size_t>(code) >= kNames.size()) return "result " + std::to_string(code);
  const std::string name = kNames[static_cast<std::size_t>(code)];
  return code == 0 ? name : name + " (" + std::to_string(code) + ")";
}

struct Text {
  std::string text;
  PLUGFEST_FIELDS(text)
};
/// Why the loader refused the plugin, and the library that it did not find, "" for other causes.
struct Refusal {
  std::string text;
  std::string missing;
  PLUGFEST_FIELDS(text, missing)
};
struct StartThread {
  std::string name;
  PLUGFEST_FIELDS(name)
};

/// Written by a signal handler: has a fixed size; texts are truncated and NUL-terminated.
struct Crash {
  std::int32_t signal = 0;
  std::int32_t code = 0;
  std::uint64_t address = 0;
  std::int32_t thread_id = 0;
  std::array<char, 32> thread{};
  std::array<char, 64> call{};
  /// With SIGABRT: the exception that the plugin did not catch, "std::runtime_error: no memory".
  std::array<char, 192> exception{};
  /// With SIGSYS: the number of the system call that the plugin tried to make, 0 for none. Then the process on which
  /// the call would have acted, in the form of the first argument of kill(2), and the action, a signal for kill(2).
  std::int32_t refused_call = 0;
  std::int32_t refused_target = 0;
  std::int32_t refused_action = 0;
  PLUGFEST_FIELDS(signal, code, address, thread_id, thread, call, exception, refused_call, refused_target,
                  refused_action)
};
/// The size of an encoded Crash: it has no padding.
inline constexpr std::size_t kCrashBytes = sizeof(Crash);
static_assert(std::has_unique_object_representations_v<Crash>);

/// A record on the log pipe, after its length (u32).
struct LogRecord {
  std::int32_t level = 0;
  std::uint64_t subsystems = 0;
  std::string file;
  std::int32_t line = 0;
  std::string text;
  PLUGFEST_FIELDS(level, subsystems, file, line, text)
};

/// This bit of the length announces the name of an environment variable that the plugin has read, instead of a
/// LogRecord.
inline constexpr std::uint32_t kVariableRecord = 1u << 31;
/// Maximum length of such a name: the record is then written at once.
inline constexpr std::size_t kMaxVariableName = 1024;

/// Every request to a thread of a rank: X(request, its answer, the thread that executes it by default).
#define PLUGFEST_REQUESTS(X)                             \
  X(ProcessFacts, ProcessAnswer, kMemoryThread)          \
  X(LinkTarget, Text, kMemoryThread)                     \
  X(Exit, Nothing, kMainThread)                          \
  X(Fork, ForkAnswer, kMainThread)                       \
  X(FailCall, FailCallAnswer, kMemoryThread)             \
  X(RecordProfiler, RecordProfilerAnswer, kMemoryThread) \
  X(UseGpu, GpuAnswer, kMemoryThread)                    \
  X(Map, Mapping, kMemoryThread)                         \
  X(MapExported, ExportedMapping, kMemoryThread)         \
  X(ReplaceDescriptor, Nothing, kMemoryThread)           \
  X(Unmap, Nothing, kMemoryThread)                       \
  X(MapAgain, Nothing, kMemoryThread)                    \
  X(Free, Nothing, kMemoryThread)                        \
  X(Protect, Nothing, kMemoryThread)                     \
  X(Fill, Nothing, kMemoryThread)                        \
  X(Check, Difference, kMemoryThread)                    \
  X(Set, Nothing, kMemoryThread)                         \
  X(CheckSet, Difference, kMemoryThread)                 \
  X(Read, Bytes, kMemoryThread)                          \
  X(Write, Nothing, kMemoryThread)                       \
  X(EndAttempts, Nothing, kMemoryThread)                 \
  X(InitNet, InitNetAnswer, kMainThread)                 \
  X(Load, LoadAnswer, kMainThread)                       \
  X(Unload, Nothing, kMainThread)                        \
  X(HasFunction, HasFunctionAnswer, kMainThread)         \
  X(Name, Text, kMainThread)                             \
  X(Call, CalledAnswer, kMainThread)                     \
  X(TextAt, Text, kMemoryThread)                         \
  X(Stream, StreamAnswer, kProgressThread)               \
  X(Watch, WatchAnswer, kWatchThread)                    \
  X(Throughput, ThroughputAnswer, kProgressThread)       \
  X(RoundTrips, RoundTripsAnswer, kProgressThread)       \
  X(OneSided, OneSidedAnswer, kProgressThread)           \
  X(CallScript, CallScriptAnswer, kProgressThread)       \
  X(Program, ProgramAnswer, kProgressThread)             \
  X(ConnectMany, ConnectManyAnswer, kServiceThread)      \
  X(Replay, ReplayAnswer, kProgressThread)               \
  X(ReplayRegistrations, ReplayRegistrationsAnswer, kServiceThread)

/// FrameHeader::kind of requests on a thread's channel.
enum class Operation : std::uint32_t {
#define PLUGFEST_OPERATION(request, answer, thread) k##request,
  PLUGFEST_REQUESTS(PLUGFEST_OPERATION)
#undef PLUGFEST_OPERATION
};

/// Operation, answer and usual thread of a request.
template <typename Request>
struct RequestTraits;
#define PLUGFEST_TRAITS(request, answer, thread)                   \
  template <>                                                      \
  struct RequestTraits<request> {                                  \
    using Answer = answer;                                         \
    static constexpr Operation kOperation = Operation::k##request; \
    static constexpr const char* kThread = thread;                 \
  };
PLUGFEST_REQUESTS(PLUGFEST_TRAITS)
#undef PLUGFEST_TRAITS

template <typename Request>
using AnswerTo = typename RequestTraits<Request>::Answer;

}  // namespace plugfest::wire
