// Messages between controller and rank: one request and one answer for each operation.
//
// A rank has a control channel (descriptor kControlFd) and one channel for each of its threads. A thread executes the
// requests of its channel in order and answers each of them. Every operation works on every thread. The rank's process
// ends when its control channel closes.
//
// To add an operation: declare its request and its answer here with their fields, add a line to PLUGFEST_REQUESTS, and
// define `execute` for the request in harness/rank.
//
// Pointers of the rank's address space travel as numbers. The rank trusts the controller. The controller does not
// trust the rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/rank/protocol/program.h"
#include "harness/rank/protocol/replay.h"
#include "harness/rank/protocol/wire.h"

namespace plugfest::rank {

/// Descriptors that a rank is started with: its control channel, the channel of kMainThread, the pipe for log lines.
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
  kFailed,    ///< Text: why the harness's part of the operation failed
  kRefused,   ///< Text: why the loader refused the plugin
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

struct Nothing {
  PLUGFEST_FIELDS()
};
struct Text {
  std::string text;
  PLUGFEST_FIELDS(text)
};
struct StartThread {
  std::string name;
  PLUGFEST_FIELDS(name)
};

/// Written by a signal handler: of fixed size; texts are truncated and NUL-terminated.
struct Crash {
  std::int32_t signal = 0;
  std::int32_t code = 0;
  std::uint64_t address = 0;
  std::int32_t thread_id = 0;
  std::array<char, 32> thread{};
  std::array<char, 64> call{};
  /// With SIGSYS: the signal that the plugin tried to send to plugfest, 0 for none, and the first argument of kill(2).
  std::int32_t refused_signal = 0;
  std::int32_t refused_target = 0;
  PLUGFEST_FIELDS(signal, code, address, thread_id, thread, call, refused_signal, refused_target)
};

/// A record on the log pipe, after its length (u32).
struct LogRecord {
  std::int32_t level = 0;
  std::uint64_t subsystems = 0;
  std::string file;
  std::int32_t line = 0;
  std::string text;
  PLUGFEST_FIELDS(level, subsystems, file, line, text)
};

// ------------------------------------------------------------------------------------------------------ process

struct ProcessFacts {
  PLUGFEST_FIELDS()
};
struct ProcessAnswer {
  std::int32_t threads = 0;
  std::int32_t file_descriptors = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t locked_bytes = 0;
  std::int64_t cpu_ns = 0;
  std::vector<std::string> libraries;
  /// "NAME=value".
  std::vector<std::string> environment;
  PLUGFEST_FIELDS(threads, file_descriptors, resident_bytes, locked_bytes, cpu_ns, libraries, environment)
};
enum class CommKind : std::uint8_t { kSend, kRecv, kListen };
/// closeSend, closeRecv or closeListen.
struct Close {
  CommKind kind = CommKind::kSend;
  std::uint64_t comm = 0;
  PLUGFEST_FIELDS(kind, comm)
};

/// The target of a symbolic link; "" if there is no such link.
struct LinkTarget {
  std::string path;
  PLUGFEST_FIELDS(path)
};

/// Calls exit(0). There is no answer.
struct Exit {
  /// Closed by an atexit handler that was registered before the plugin was loaded, and so runs after its handlers.
  std::vector<Close> close_after_plugin;
  PLUGFEST_FIELDS(close_after_plugin)
};
enum class ForkAction : std::uint8_t {
  kExit,  ///< the child calls _exit(0)
  kExec,  ///< the child runs /bin/true
  kInit,  ///< the child calls init and devices, and fails if one fails
};
struct Fork {
  ForkAction action = ForkAction::kExit;
  PLUGFEST_FIELDS(action)
};
struct ForkAnswer {
  /// As waitpid returns it.
  std::int32_t status = 0;
  PLUGFEST_FIELDS(status)
};
// ------------------------------------------------------------------------------------------------------- memory

struct Range {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  PLUGFEST_FIELDS(address, size)
};
struct Pattern {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  PLUGFEST_FIELDS(address, size, seed)
};
struct ByteValue {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint8_t value = 0;
  PLUGFEST_FIELDS(address, size, value)
};

struct Map {
  std::uint64_t size = 0;
  /// The last byte lies before the guard page; else the first byte lies after one.
  bool at_end = true;
  PLUGFEST_FIELDS(size, at_end)
};
struct Mapping {
  /// The memory that was asked for, and the whole pages between the guard pages.
  std::uint64_t address = 0;
  std::uint64_t pages_address = 0;
  std::uint64_t pages_size = 0;
  PLUGFEST_FIELDS(address, pages_address, pages_size)
};
/// These four take the pages of a Mapping.
struct Unmap : Range {};
struct MapAgain : Range {};
struct Free : Range {};
struct Protect {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  /// PROT_* bits.
  std::int32_t access = 0;
  PLUGFEST_FIELDS(address, size, access)
};
struct Fill : Pattern {};
struct Check : Pattern {};
struct Set : ByteValue {};
struct CheckSet : ByteValue {};
struct Difference {
  /// Number of bytes that differ. The other members describe the first of them.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint8_t got = 0;
  std::uint8_t expected = 0;
  PLUGFEST_FIELDS(bytes, offset, got, expected)
};
struct Read : Range {};
struct Bytes {
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(bytes)
};
struct Write {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(address, bytes)
};

// ------------------------------------------------------------------------------------------------------ library

struct Load {
  std::string plugin;
  std::int32_t api = 0;
  /// plugin::InterfaceKind.
  std::uint8_t interface = 0;
  PLUGFEST_FIELDS(plugin, api, interface)
};
struct LoadAnswer {
  std::string path;
  std::int32_t api = 0;
  std::vector<std::int32_t> apis;
  bool built_in = false;
  std::string name;
  bool name_is_null = false;
  PLUGFEST_FIELDS(path, api, apis, built_in, name, name_is_null)
};
struct Unload {
  PLUGFEST_FIELDS()
};
struct HasFunction {
  /// As in NCCL's headers: "regMrDmaBuf".
  std::string name;
  PLUGFEST_FIELDS(name)
};
struct HasFunctionAnswer {
  bool has = false;
  PLUGFEST_FIELDS(has)
};
struct Name {
  PLUGFEST_FIELDS()
};

// ------------------------------------------------------------------------------------------------- plugin calls

/// Members of every answer to a plugin call. `start_ns` is 0 when the plugin has no such function.
struct CallAnswer {
  /// ncclResult_t.
  std::int32_t code = 0;
  /// CLOCK_MONOTONIC before and after the call.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Writes outside of the outputs.
  std::string damage;
  /// Changes in argument arrays that are only inputs.
  std::string changes;
  PLUGFEST_FIELDS(code, start_ns, end_ns, damage, changes)
};
struct PointerAnswer : CallAnswer {
  std::uint64_t value = 0;
  bool untouched = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, value, untouched)
};

/// Calls any function of any interface but the net, whose calls pass through plugin::Net. plugin::SlotLayout says what
/// each argument is.
struct Argument {
  /// A number: its value. An output: what it holds before the call, and after it in the answer.
  std::uint64_t number = 0;
  /// Texts, bytes, handles: the content. In the answer: that of handles and properties after the call.
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(number, bytes)
};
struct Call {
  std::string function;
  /// One for each parameter.
  std::vector<Argument> arguments;
  PLUGFEST_FIELDS(function, arguments)
};
struct CalledAnswer : CallAnswer {
  /// One for each parameter; empty for those that the plugin does not write.
  std::vector<Argument> outputs;
  PLUGFEST_FIELDS_AFTER(CallAnswer, outputs)
};
/// The text at an address that the plugin has stored; a bad address does no harm.
struct TextAt {
  std::uint64_t address = 0;
  PLUGFEST_FIELDS(address)
};

// `…_slot`: what an output holds before the call.

struct Init {
  std::uint64_t context_slot = 0;
  std::int32_t traffic_class = -1;
  std::uint64_t comm_id = 0;
  bool profiler = true;
  PLUGFEST_FIELDS(context_slot, traffic_class, comm_id, profiler)
};
struct Finalize {
  std::uint64_t context = 0;
  PLUGFEST_FIELDS(context)
};
struct Devices {
  std::int32_t count_slot = 0;
  PLUGFEST_FIELDS(count_slot)
};
struct DevicesAnswer : CallAnswer {
  std::int32_t count = 0;
  PLUGFEST_FIELDS_AFTER(CallAnswer, count)
};
struct GetProperties {
  std::int32_t device = 0;
  /// Every byte of the structure before the call.
  std::uint8_t fill = 0;
  PLUGFEST_FIELDS(device, fill)
};
struct Field {
  std::string name;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  PLUGFEST_FIELDS(name, offset, size)
};
struct PropertiesAnswer : CallAnswer {
  std::vector<std::byte> bytes;
  std::vector<Field> fields;
  std::optional<std::string> name;
  std::optional<std::string> pci_path;
  PLUGFEST_FIELDS_AFTER(CallAnswer, bytes, fields, name, pci_path)
};
/// The answer's count is the index of the new device.
struct MakeVDevice {
  std::vector<std::int32_t> devices;
  std::int32_t index_slot = 0;
  PLUGFEST_FIELDS(devices, index_slot)
};
struct SetNetAttributes {
  std::uint64_t context = 0;
  std::array<std::int32_t, 8> comms{};
  std::array<std::uint32_t, 3> bits{};
  PLUGFEST_FIELDS(context, comms, bits)
};
struct Listen {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::uint8_t handle_fill = 0;
  std::uint64_t comm_slot = 0;
  PLUGFEST_FIELDS(device, context, handle_fill, comm_slot)
};
struct ListenAnswer : PointerAnswer {
  std::array<std::byte, 128> handle{};
  PLUGFEST_FIELDS_AFTER(PointerAnswer, handle)
};
/// The first Connect or Accept with an `attempt` (a number that the controller chooses) makes the buffers of the
/// attempt. Later ones pass the same addresses, with the contents that the plugin left.
struct Connect {
  std::uint64_t attempt = 0;
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::array<std::byte, 128> handle{};
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  PLUGFEST_FIELDS(attempt, device, context, handle, comm_slot, device_handle)
};
struct Accept {
  std::uint64_t attempt = 0;
  std::uint64_t listener = 0;
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  PLUGFEST_FIELDS(attempt, listener, comm_slot, device_handle)
};
/// Frees the buffers of attempts.
struct EndAttempts {
  std::vector<std::uint64_t> attempts;
  /// Makes the buffers inaccessible instead, so that nothing else gets their addresses.
  bool forbid = false;
  PLUGFEST_FIELDS(attempts, forbid)
};
struct RegMr {
  std::uint64_t comm = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t type = 0;
  std::uint64_t mhandle_slot = 0;
  PLUGFEST_FIELDS(comm, address, size, type, mhandle_slot)
};
struct DeregMr {
  std::uint64_t comm = 0;
  std::uint64_t mhandle = 0;
  PLUGFEST_FIELDS(comm, mhandle)
};
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint64_t mhandle = 0;
  std::uint64_t phandle = 0;
  PLUGFEST_FIELDS(address, size, tag, mhandle, phandle)
};
struct Post {
  std::uint64_t comm = 0;
  std::vector<Piece> pieces;
  std::uint64_t request_slot = 0;
  PLUGFEST_FIELDS(comm, pieces, request_slot)
};
/// Takes one piece.
struct Isend : Post {};
struct Irecv : Post {};
struct Iflush : Post {};
/// Entries of the array that test gets.
inline constexpr std::size_t kSizes = 64;
struct Test {
  std::uint64_t request = 0;
  std::int32_t done_slot = 0;
  /// False: sizes is NULL.
  bool sizes = true;
  std::int32_t size_fill = 0;
  PLUGFEST_FIELDS(request, done_slot, sizes, size_fill)
};
struct TestAnswer : CallAnswer {
  std::int32_t done = 0;
  /// kSizes entries, or none when sizes was NULL.
  std::vector<std::int32_t> sizes;
  PLUGFEST_FIELDS_AFTER(CallAnswer, done, sizes)
};
/// Tests until done, for `timeout_ns` at most.
struct Wait : Test {
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS_AFTER(Test, timeout_ns)
};
struct IrecvConsumed {
  std::uint64_t comm = 0;
  std::int32_t n = 0;
  std::uint64_t request = 0;
  PLUGFEST_FIELDS(comm, n, request)
};

// ---------------------------------------------------------------------------------------------------- workloads

/// One end of a stream of messages; see control::StreamPlan.
struct Stream {
  std::uint64_t comm = 0;
  bool sends = true;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;
  std::vector<std::uint32_t> sizes;
  std::uint32_t posted_size = 0;
  std::uint32_t window = 8;
  std::uint32_t group = 1;
  std::int32_t tag = 0;
  bool oldest_only = true;
  /// What *request holds before isend and irecv; with `stale`: what it held before.
  std::uint64_t request_slot = 0;
  bool stale = true;
  std::uint32_t check_every = 1;
  bool check_sizes = false;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(comm, sends, count, seed, sizes, posted_size, window, group, tag, oldest_only, request_slot, stale,
                  check_every, check_sizes, timeout_ns)
};
struct StreamAnswer : CallAnswer {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  std::string broken;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, messages, bytes, deferrals, tests, broken, stalled)
};
/// See control::ConnectMany.
struct ConnectMany {
  /// One for each handle.
  std::vector<std::int32_t> devices;
  std::uint64_t context = 0;
  std::vector<std::array<std::byte, 128>> handles;
  std::vector<std::uint64_t> listeners;
  std::vector<std::uint32_t> order;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(devices, context, handles, listeners, order, timeout_ns)
};
struct ConnectManyAnswer : CallAnswer {
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> recv_comms;
  std::uint64_t calls = 0;
  std::string broken;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, send_comms, recv_comms, calls, broken, stalled)
};
/// Of a Program. Messages and bytes are those that were received.
struct ProgramAnswer : CallAnswer {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  /// The first deviation, and the step of the schedule that it belongs to; "" for none.
  std::string broken;
  std::uint32_t step = 0;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, messages, bytes, deferrals, tests, broken, step, stalled)
};
struct ReplayAnswer : CallAnswer {
  ReplayReport report;
  PLUGFEST_FIELDS_AFTER(CallAnswer, report)
};
struct ReplayRegistrationsAnswer : CallAnswer {
  std::uint64_t registrations = 0;
  std::string broken;
  PLUGFEST_FIELDS_AFTER(CallAnswer, registrations, broken)
};

/// Watches memory of zeroes until the pattern of `seed` has arrived in it. `size`: a multiple of 128 bytes.
struct Watch {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  /// Without progress.
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(address, size, seed, timeout_ns)
};
struct WatchAnswer : CallAnswer {
  /// The first word or line that was seen in part; "" if there was none.
  std::string broken;
  PLUGFEST_FIELDS_AFTER(CallAnswer, broken)
};
/// See control::ThroughputPlan.
struct Throughput {
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> receive_comms;
  std::uint64_t size = 0;
  std::uint32_t window = 8;
  std::uint32_t group = 1;
  /// Of each comm; a multiple of `group`.
  std::uint64_t count = 0;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(send_comms, receive_comms, size, window, group, count, timeout_ns)
};
struct ThroughputAnswer : CallAnswer {
  std::string broken;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, broken, stalled)
};
/// See control::RoundTripPlan. `starts`: this side sends first, and measures.
struct RoundTrips {
  std::uint64_t send_comm = 0;
  std::uint64_t receive_comm = 0;
  bool starts = false;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  std::vector<std::uint32_t> per_mille;
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS(send_comm, receive_comm, starts, size, count, per_mille, timeout_ns)
};
struct RoundTripsAnswer : CallAnswer {
  /// One for each of `per_mille`; empty on the side that does not measure.
  std::vector<std::uint32_t> half_trip_ns;
  std::string broken;
  bool stalled = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, half_trip_ns, broken, stalled)
};

// --------------------------------------------------------------------------------------------------- operations

/// Every request to a thread of a rank: X(request, its answer, the thread that executes it unless another is named).
#define PLUGFEST_REQUESTS(X)                        \
  X(ProcessFacts, ProcessAnswer, kMemoryThread)     \
  X(LinkTarget, Text, kMemoryThread)                \
  X(Exit, Nothing, kMainThread)                     \
  X(Fork, ForkAnswer, kMainThread)                  \
  X(Map, Mapping, kMemoryThread)                    \
  X(Unmap, Nothing, kMemoryThread)                  \
  X(MapAgain, Nothing, kMemoryThread)               \
  X(Free, Nothing, kMemoryThread)                   \
  X(Protect, Nothing, kMemoryThread)                \
  X(Fill, Nothing, kMemoryThread)                   \
  X(Check, Difference, kMemoryThread)               \
  X(Set, Nothing, kMemoryThread)                    \
  X(CheckSet, Difference, kMemoryThread)            \
  X(Read, Bytes, kMemoryThread)                     \
  X(Write, Nothing, kMemoryThread)                  \
  X(EndAttempts, Nothing, kMemoryThread)            \
  X(Load, LoadAnswer, kMainThread)                  \
  X(Unload, Nothing, kMainThread)                   \
  X(HasFunction, HasFunctionAnswer, kMainThread)    \
  X(Name, Text, kMainThread)                        \
  X(Call, CalledAnswer, kMainThread)                \
  X(TextAt, Text, kMemoryThread)                    \
  X(Init, PointerAnswer, kMainThread)               \
  X(Finalize, CallAnswer, kMainThread)              \
  X(Devices, DevicesAnswer, kMainThread)            \
  X(GetProperties, PropertiesAnswer, kMainThread)   \
  X(MakeVDevice, DevicesAnswer, kMainThread)        \
  X(SetNetAttributes, CallAnswer, kProgressThread)  \
  X(Listen, ListenAnswer, kServiceThread)           \
  X(Connect, PointerAnswer, kServiceThread)         \
  X(Accept, PointerAnswer, kServiceThread)          \
  X(RegMr, PointerAnswer, kServiceThread)           \
  X(DeregMr, CallAnswer, kServiceThread)            \
  X(Close, CallAnswer, kServiceThread)              \
  X(Isend, PointerAnswer, kProgressThread)          \
  X(Irecv, PointerAnswer, kProgressThread)          \
  X(Iflush, PointerAnswer, kProgressThread)         \
  X(Test, TestAnswer, kProgressThread)              \
  X(Wait, TestAnswer, kProgressThread)              \
  X(IrecvConsumed, CallAnswer, kProgressThread)     \
  X(Stream, StreamAnswer, kProgressThread)          \
  X(Watch, WatchAnswer, kWatchThread)               \
  X(Throughput, ThroughputAnswer, kProgressThread)  \
  X(RoundTrips, RoundTripsAnswer, kProgressThread)  \
  X(Program, ProgramAnswer, kProgressThread)        \
  X(ConnectMany, ConnectManyAnswer, kServiceThread) \
  X(Replay, ReplayAnswer, kProgressThread)          \
  X(ReplayRegistrations, ReplayRegistrationsAnswer, kServiceThread)

/// FrameHeader::kind of requests on a thread's channel.
enum class Operation : std::uint32_t {
#define PLUGFEST_OPERATION(request, answer, thread) k##request,
  PLUGFEST_REQUESTS(PLUGFEST_OPERATION)
#undef PLUGFEST_OPERATION
};

/// Operation, answer and usual thread of a request.
template <class Request>
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

template <class Request>
using AnswerTo = typename RequestTraits<Request>::Answer;

}  // namespace plugfest::rank
