// What controller and rank say to each other: one request and one answer for each operation.
//
// A rank has one channel for itself (descriptor kControlFd) and one for each of its threads. A thread executes the
// requests of its channel one after the other and answers each; every operation works on every thread. When the
// control channel ends, the rank's process ends.
//
// Pointers of the rank's address space travel as numbers. The controller is trusted; a rank is not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plugfest::rank {

/// Descriptors that a rank is started with: its control channel, the channel of thread `main`, the pipe for log lines.
inline constexpr int kControlFd = 3;
inline constexpr int kMainFd = 4;
inline constexpr int kLogFd = 5;

/// The name of the first thread, which exists from the start.
inline constexpr const char* kMainThread = "main";

/// FrameHeader::kind of requests on the control channel.
enum class ControlOperation : std::uint32_t {
  kStartThread,  ///< StartThread, with the thread's channel as descriptor → nothing
  kFunctionOn,   ///< Text: a thread's name → Text: the plugin function that it runs, "" for none
};

/// FrameHeader::kind of requests on a thread's channel.
enum class Operation : std::uint32_t {
  kProcessFacts,  ///< nothing → ProcessAnswer
  kEnvironment,   ///< Environment → nothing
  kInterrupt,     ///< Number: microseconds → nothing
  kMap,           ///< Map → Mapping
  kUnmap,         ///< Range → nothing
  kMapAgain,      ///< Range → nothing
  kFree,          ///< Range: a Mapping's pages → nothing
  kProtect,       ///< Protect → nothing
  kFill,          ///< Pattern → nothing
  kCheck,         ///< Pattern → Difference
  kSet,           ///< ByteValue → nothing
  kCheckSet,      ///< ByteValue → Difference
  kRead,          ///< Range → Bytes
  kWrite,         ///< Write → nothing
  kEndAttempt,    ///< Number: attempt → nothing
  kLoad,          ///< Load → LoadAnswer
  kUnload,        ///< nothing → nothing
  kHasFunction,   ///< Text → Number: 1 or 0
  // Plugin calls, each answered by what derives from CallAnswer.
  kInit,
  kFinalize,
  kDevices,
  kProperties,
  kSetNetAttributes,
  kListen,
  kConnect,
  kAccept,
  kRegMr,
  kDeregMr,
  kIsend,
  kIrecv,
  kIflush,
  kTest,
  kWait,
  kConsumed,
  kClose,
  // Programs.
  kStream,
  kConnectMany,
};

/// FrameHeader::kind of what a rank sends.
enum class Answer : std::uint32_t {
  kDone,      ///< the operation's answer
  kFailed,    ///< Text: why the harness's part of it failed
  kRefused,   ///< Text: the loader's finding about the plugin
  kProgress,  ///< nothing: a program moves on; the answer comes later
  kCrash,     ///< Crash, on the control channel, of its own accord
};

struct Nothing {
  template <class A>
  void members(A&) {}
};
struct Text {
  std::string text;
  template <class A>
  void members(A& a) {
    a(text);
  }
};
struct Number {
  std::uint64_t value = 0;
  template <class A>
  void members(A& a) {
    a(value);
  }
};
struct Bytes {
  std::vector<std::byte> bytes;
  template <class A>
  void members(A& a) {
    a(bytes);
  }
};
struct StartThread {
  std::string name;
  template <class A>
  void members(A& a) {
    a(name);
  }
};

/// Written by a signal handler: fixed size, texts cut and NUL-terminated.
struct Crash {
  std::int32_t signal = 0;
  std::int32_t code = 0;
  std::uint64_t address = 0;
  std::int32_t thread_id = 0;
  std::array<char, 32> thread{};
  std::array<char, 64> call{};
  template <class A>
  void members(A& a) {
    a(signal, code, address, thread_id, thread, call);
  }
};

struct ProcessAnswer {
  std::int32_t threads = 0;
  std::int32_t file_descriptors = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t locked_bytes = 0;
  std::int64_t cpu_ns = 0;
  std::vector<std::string> libraries;
  template <class A>
  void members(A& a) {
    a(threads, file_descriptors, resident_bytes, locked_bytes, cpu_ns, libraries);
  }
};
struct Environment {
  std::string variable;
  std::optional<std::string> value;
  template <class A>
  void members(A& a) {
    a(variable, value);
  }
};

// ------------------------------------------------------------------------------------------------------- memory

struct Map {
  std::uint64_t size = 0;
  bool at_end = true;
  template <class A>
  void members(A& a) {
    a(size, at_end);
  }
};
struct Mapping {
  /// What was asked for, and the whole pages between the guard pages.
  std::uint64_t address = 0;
  std::uint64_t pages_address = 0;
  std::uint64_t pages_size = 0;
  template <class A>
  void members(A& a) {
    a(address, pages_address, pages_size);
  }
};
struct Range {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  template <class A>
  void members(A& a) {
    a(address, size);
  }
};
struct Protect {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  /// PROT_… bits.
  std::int32_t access = 0;
  template <class A>
  void members(A& a) {
    a(address, size, access);
  }
};
struct Pattern {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  template <class A>
  void members(A& a) {
    a(address, size, seed);
  }
};
struct ByteValue {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint8_t value = 0;
  template <class A>
  void members(A& a) {
    a(address, size, value);
  }
};
struct Difference {
  /// Bytes that differ; 0: equal. The first one's offset, its value, and what was expected.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint8_t got = 0;
  std::uint8_t expected = 0;
  template <class A>
  void members(A& a) {
    a(bytes, offset, got, expected);
  }
};
struct Write {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
  template <class A>
  void members(A& a) {
    a(address, bytes);
  }
};

// ------------------------------------------------------------------------------------------------------ library

struct Load {
  std::string plugin;
  std::int32_t api = 0;
  template <class A>
  void members(A& a) {
    a(plugin, api);
  }
};
struct LoadAnswer {
  std::string path;
  std::int32_t api = 0;
  std::vector<std::int32_t> apis;
  bool built_in = false;
  std::string name;
  bool name_is_null = false;
  template <class A>
  void members(A& a) {
    a(path, api, apis, built_in, name, name_is_null);
  }
};

// ------------------------------------------------------------------------------------------------- plugin calls

/// Result code, CLOCK_MONOTONIC before and after, and what was overwritten that must not be.
struct CallAnswer {
  std::int32_t code = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::string damage;
  /// What became of argument arrays that should have stayed as they were.
  std::string changes;
  template <class A>
  void members(A& a) {
    a(code, start_ns, end_ns, damage, changes);
  }
};
struct PointerAnswer : CallAnswer {
  std::uint64_t value = 0;
  bool untouched = false;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(value, untouched);
  }
};
struct IntAnswer : CallAnswer {
  std::int32_t value = 0;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(value);
  }
};

/// `…_slot`: what an output holds before the call.
struct Init {
  std::uint64_t context_slot = 0;
  std::int32_t traffic_class = -1;
  std::uint64_t comm_id = 0;
  bool profiler = true;
  template <class A>
  void members(A& a) {
    a(context_slot, traffic_class, comm_id, profiler);
  }
};
struct Properties {
  std::int32_t device = 0;
  std::uint8_t fill = 0;
  template <class A>
  void members(A& a) {
    a(device, fill);
  }
};
struct Field {
  std::string name;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  template <class A>
  void members(A& a) {
    a(name, offset, size);
  }
};
struct PropertiesAnswer : CallAnswer {
  std::vector<std::byte> bytes;
  std::vector<Field> fields;
  std::optional<std::string> name;
  std::optional<std::string> pci_path;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(bytes, fields, name, pci_path);
  }
};
struct SetNetAttributes {
  std::uint64_t context = 0;
  std::array<std::int32_t, 8> comms{};
  std::array<std::uint32_t, 3> bits{};
  template <class A>
  void members(A& a) {
    a(context, comms, bits);
  }
};
struct Listen {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::uint8_t handle_fill = 0;
  std::uint64_t comm_slot = 0;
  template <class A>
  void members(A& a) {
    a(device, context, handle_fill, comm_slot);
  }
};
struct ListenAnswer : PointerAnswer {
  std::array<std::byte, 128> handle{};
  template <class A>
  void members(A& a) {
    PointerAnswer::members(a);
    a(handle);
  }
};
/// The first Connect of an `attempt` (a number of the controller's choice) makes its buffers; later ones find them at
/// the same addresses, as they were left.
struct Connect {
  std::uint64_t attempt = 0;
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::array<std::byte, 128> handle{};
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  template <class A>
  void members(A& a) {
    a(attempt, device, context, handle, comm_slot, device_handle);
  }
};
struct Accept {
  std::uint64_t attempt = 0;
  std::uint64_t listener = 0;
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  template <class A>
  void members(A& a) {
    a(attempt, listener, comm_slot, device_handle);
  }
};
struct RegMr {
  std::uint64_t comm = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t type = 0;
  std::uint64_t mhandle_slot = 0;
  template <class A>
  void members(A& a) {
    a(comm, address, size, type, mhandle_slot);
  }
};
struct DeregMr {
  std::uint64_t comm = 0;
  std::uint64_t mhandle = 0;
  template <class A>
  void members(A& a) {
    a(comm, mhandle);
  }
};
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint64_t mhandle = 0;
  std::uint64_t phandle = 0;
  template <class A>
  void members(A& a) {
    a(address, size, tag, mhandle, phandle);
  }
};
/// isend (one piece), irecv, iflush.
struct Post {
  std::uint64_t comm = 0;
  std::vector<Piece> pieces;
  std::uint64_t request_slot = 0;
  template <class A>
  void members(A& a) {
    a(comm, pieces, request_slot);
  }
};
/// Entries of the array that test gets.
inline constexpr std::size_t kSizes = 64;
struct Test {
  std::uint64_t request = 0;
  std::int32_t done_slot = 0;
  bool sizes = true;
  std::int32_t size_fill = 0;
  /// kWait only: until done, or for so long.
  std::int64_t patience_ns = 0;
  template <class A>
  void members(A& a) {
    a(request, done_slot, sizes, size_fill, patience_ns);
  }
};
struct TestAnswer : CallAnswer {
  std::int32_t done = 0;
  /// kSizes entries, or none when sizes was NULL.
  std::vector<std::int32_t> sizes;
  /// kWait: calls made.
  std::uint64_t calls = 1;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(done, sizes, calls);
  }
};
struct Consumed {
  std::uint64_t comm = 0;
  std::int32_t n = 0;
  std::uint64_t request = 0;
  template <class A>
  void members(A& a) {
    a(comm, n, request);
  }
};
enum class CommKind : std::uint8_t { kSend, kRecv, kListen };
struct Close {
  CommKind kind = CommKind::kSend;
  std::uint64_t comm = 0;
  template <class A>
  void members(A& a) {
    a(kind, comm);
  }
};

// ----------------------------------------------------------------------------------------------------- programs

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
  /// *request before isend and irecv is this, or (`stale`) what the slot held before.
  std::uint64_t request_slot = 0;
  bool stale = true;
  std::uint32_t check_every = 1;
  std::int64_t patience_ns = 0;
  template <class A>
  void members(A& a) {
    a(comm, sends, count, seed, sizes, posted_size, window, group, tag, oldest_only, request_slot, stale, check_every,
      patience_ns);
  }
};
struct StreamAnswer : CallAnswer {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  std::string broken;
  bool stalled = false;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(messages, bytes, deferrals, tests, broken, stalled);
  }
};
struct ConnectMany {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::vector<std::array<std::byte, 128>> handles;
  std::vector<std::uint64_t> listeners;
  std::vector<std::uint32_t> order;
  std::int64_t patience_ns = 0;
  template <class A>
  void members(A& a) {
    a(device, context, handles, listeners, order, patience_ns);
  }
};
struct ConnectManyAnswer : CallAnswer {
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> recv_comms;
  std::uint64_t calls = 0;
  std::string broken;
  bool stalled = false;
  template <class A>
  void members(A& a) {
    CallAnswer::members(a);
    a(send_comms, recv_comms, calls, broken, stalled);
  }
};

/// A line on the log pipe: a length (u32), then this.
struct LogRecord {
  std::int32_t level = 0;
  std::uint64_t subsystems = 0;
  std::string file;
  std::int32_t line = 0;
  std::string text;
  template <class A>
  void members(A& a) {
    a(level, subsystems, file, line, text);
  }
};

}  // namespace plugfest::rank
