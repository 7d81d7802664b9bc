// Requests about the process of a rank, the library that it loads, and its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::wire {

struct Nothing {
  PLUGFEST_FIELDS()
};
struct ProcessFacts : Nothing {};
struct ProcessAnswer {
  std::int32_t threads = 0;
  std::int32_t file_descriptors = 0;
  std::uint64_t resident_bytes = 0;  ///< without the free memory of the heap
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

/// Calls exit(0). It has no answer.
struct Exit {
  /// Comms to close in an atexit handler that was registered before the plugin was loaded, and so runs after the
  /// plugin's handlers.
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
  /// The status that waitpid returns.
  std::int32_t status = 0;
  PLUGFEST_FIELDS(status)
};

/// Counts the system and verbs calls that the plugin makes in init, devices, listen, connect and accept, and makes one
/// of them fail.
struct FailCall {
  bool counts = false;
  /// The plugin's function, "connect"; the call in it, "setsockopt"; its number: 1 is the first call, 0 stands for all.
  std::string function;
  std::string call;
  std::uint32_t number = 0;
  PLUGFEST_FIELDS(counts, function, call, number)
};
struct CallsMade {
  std::string function;
  std::string call;
  std::uint32_t count = 0;
  PLUGFEST_FIELDS(function, call, count)
};
/// What happened since the previous request.
struct FailCallAnswer {
  std::vector<CallsMade> made;
  /// Whether the call failed, and the code that made it, "libnccl-net-foo.so+0x1234"; "" in a verbs call.
  bool failed = false;
  std::string failed_at;
  /// The code that closed a descriptor which was not open; "" if there was none.
  std::string invalid_close;
  PLUGFEST_FIELDS(made, failed, failed_at, invalid_close)
};

/// Records the plugin's calls of the profiler callback from now on, and says how the callback answers them.
struct RecordProfiler {
  bool records = false;
  /// Whether a start stores a handle in *eHandle; otherwise it stays as the plugin preset it, as without a profiler.
  bool stores_handles = true;
  /// ncclResult_t that the callback returns.
  std::int32_t result = 0;
  PLUGFEST_FIELDS(records, stores_handles, result)
};
/// A call of a profiler callback: ncclProfilerCallback_t(eHandle, type, pHandle, pluginId, extData).
struct ProfilerCall {
  /// Which of the rank's callbacks was called: its number in the call of init.
  std::uint32_t callback = 0;
  /// When the call began, CLOCK_MONOTONIC.
  std::int64_t at_ns = 0;
  /// The plugin's function that made the call; "" on a thread of the plugin.
  std::string function;
  std::uint64_t event = 0;
  /// Whether *eHandle can be read and written. Then its value before the call, and after it.
  bool accessible = false;
  std::uint64_t handle_before = 0;
  std::uint64_t handle_after = 0;
  std::int32_t type = 0;
  std::uint64_t phandle = 0;
  std::int64_t plugin_id = 0;
  std::uint64_t data = 0;
  /// Number of bytes that can be read at extData, at most 40.
  std::uint32_t readable_bytes = 0;
  PLUGFEST_FIELDS(callback, at_ns, function, event, accessible, handle_before, handle_after, type, phandle, plugin_id,
                  data, readable_bytes)
};
/// The calls since the previous request, and how many more were made than fit into the record.
struct RecordProfilerAnswer {
  std::vector<ProfilerCall> calls;
  std::uint64_t left_out = 0;
  PLUGFEST_FIELDS(calls, left_out)
};

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
struct Unload : Nothing {};
struct HasFunction {
  /// The name in NCCL's headers: "regMrDmaBuf".
  std::string name;
  PLUGFEST_FIELDS(name)
};
struct HasFunctionAnswer {
  bool has = false;
  PLUGFEST_FIELDS(has)
};
struct Name : Nothing {};

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

/// Opens the CUDA driver.
struct UseGpu {
  /// Whether the thread that executes the request enters the GPU's primary context.
  bool enter = true;
  PLUGFEST_FIELDS(enter)
};
struct GpuAnswer {
  /// Why there is no GPU; "" if there is one. Then its name, and the context of the thread.
  std::string problem;
  std::string name;
  std::uint64_t context = 0;
  PLUGFEST_FIELDS(problem, name, context)
};

struct Map {
  std::uint64_t size = 0;
  /// Whether the last byte lies before the guard page; otherwise the first byte lies after one.
  bool at_end = true;
  /// Whether the memory is the GPU's, without guard pages. The process has opened the GPU (UseGpu).
  bool gpu = false;
  PLUGFEST_FIELDS(size, at_end, gpu)
};
struct Mapping {
  /// The requested memory, and the whole pages between the guard pages.
  std::uint64_t address = 0;
  std::uint64_t pages_address = 0;
  std::uint64_t pages_size = 0;
  PLUGFEST_FIELDS(address, pages_address, pages_size)
};
/// These four requests apply to the pages of a Mapping.
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

}  // namespace plugfest::wire
