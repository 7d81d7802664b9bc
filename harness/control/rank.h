// A rank: a process with one copy of the plugin, which rules control call by call.
//
//   Listener listener = receiver.listen(Device{0});
//   receiver.freeze();                                   // SIGSTOP: the peer makes no calls until thaw
//   Connect connect = sender.connect(Device{0}, listener.handle());
//   for (int attempt = 0; attempt < 32 && !connect.poll(); ++attempt) {}
//   receiver.thaw();
//   auto [send, receive] = finish(connect, receiver.accept(listener));      // script.h
//
// connection.h explains the three forms of each call and the thread that makes it. A call that hangs, crashes or writes
// outside its outputs ends the rule with an exception of process/errors.h.
// Thread safety: a rank and all objects that it returned belong to one thread of the controller at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/connection.h"
#include "harness/control/interface_call.h"
#include "harness/control/process/process_facts.h"
#include "harness/control/properties.h"
#include "harness/plugin/layout.h"

namespace plugfest::control {

struct InitOptions {
  /// v11 and later: *ctx before the call. v10 and later: config->trafficClass. v11 and later: commId.
  Preset context = Preset::kPoison;
  int traffic_class = -1;
  std::uint64_t comm_id = 0x706c7567;
  /// Number of the profiler callback that init of v10 and later gets: 1 or 2; 0: NULL.
  int profiler = 1;
};

/// How the profiler callback answers a plugin.
struct ProfilerAnswers {
  /// Whether a start stores a handle. If not, *eHandle stays as it is, as when no profiler watches net plugins.
  bool stores_handles = true;
  int result = kSuccess;
};

/// A plugin's call of the profiler callback: ncclProfilerCallback_t(eHandle, type, pHandle, pluginId, extData).
struct ProfilerCall {
  /// Number of the callback: InitOptions::profiler.
  int callback = 0;
  /// When the call began, CLOCK_MONOTONIC of the rank's machine.
  std::int64_t at_ns = 0;
  /// The plugin's function that made the call, "irecv"; "" on a thread of the plugin.
  std::string function;
  /// eHandle; whether *eHandle can be read and written; its value before and after the call.
  std::uint64_t event = 0;
  bool accessible = false;
  std::uint64_t handle_before = 0;
  std::uint64_t handle_after = 0;
  /// abi::ProfilerNetEvent, or any other number that the plugin passed.
  int type = 0;
  std::uint64_t phandle = 0;
  std::int64_t plugin_id = 0;
  /// extData, and the number of bytes that can be read there, at most 40.
  std::uint64_t data = 0;
  std::size_t readable_bytes = 0;
};

/// ncclNetAttr of v11 and later. The defaults are NCCL's.
struct NetAttributes {
  std::array<std::int32_t, 4> send = {-1, -1, -1, -1};
  std::array<std::int32_t, 4> receive = {-1, -1, -1, -1};
  std::uint32_t op = ~0u;
  std::uint32_t algo = ~0u;
  std::uint32_t proto = ~0u;
};

/// The GPU of a rank, and the CUDA context of the thread that was asked.
struct GpuFacts {
  /// Why there is none; "" if there is one.
  std::string problem;
  std::string name;
  std::uint64_t context = 0;
};

class Rank {
 public:
  explicit Rank(std::shared_ptr<RankProcess> process, std::string thread = {});

  /// "a.eth0".
  const std::string& name() const;
  int api() const;
  const LibraryFacts& library() const;
  /// Errors: Unusable for a rank on another machine.
  pid_t pid() const;
  /// A copy whose calls run on that thread, which is started if necessary.
  Rank on(std::string_view thread) const;

  // These functions load, initialize and query the plugin, for any interface. They run on thread `main`. Unless the
  // rule's RankOptions say otherwise, a rank is loaded and initialized once, and its devices are counted.

  /// Loads the session's subject: dlopen, look-up of the table. `api`: replaces the session's version; 0 is the newest.
  /// `interface`: another interface of the same library. Before CollNet, GIN and RMA, calls init and devices of the
  /// library's net, as NCCL does.
  /// Errors: `Refused`; `Unusable` if the library of NVIDIA's driver is missing.
  const LibraryFacts& load(std::optional<int> api = std::nullopt,
                           std::optional<plugin::InterfaceKind> interface = std::nullopt);
  /// The current value of the table's first member; "" for NULL.
  std::string plugin_name();
  void unload();
  /// Calls init and returns the context; NULL if the plugin stored none. listen and connect use the first context.
  /// Other interfaces than the net support init, finalize, devices, try_devices, properties, try_properties and
  /// has_function; call() calls all their other functions.
  /// v6 to v10, as in NCCL's compatibility layer: only the first init calls the plugin, and the first one after an
  /// equal number of finalizes.
  std::uint64_t init(const InitOptions& options = {});
  PointerOutcome try_init(const InitOptions& options = {}) { return start_init(options).get(); }
  Started<PointerOutcome> start_init(const InitOptions& options = {});
  /// v6 to v10: returns Success and does not call the plugin.
  void finalize(std::uint64_t context);
  Outcome try_finalize(std::uint64_t context) { return start_finalize(context).get(); }
  Started<Outcome> start_finalize(std::uint64_t context);
  /// Contexts that are not finalized, oldest first.
  const std::vector<std::uint64_t>& contexts() const;

  int devices();
  IntOutcome try_devices(int preset = -7);
  Properties properties(Device device);
  /// `fill`: value of every byte of the struct before the call.
  PropertiesOutcome try_properties(Device device, std::uint8_t fill = 0x5a);
  Started<PropertiesOutcome> start_properties(Device device, std::uint8_t fill = 0x5a);
  /// The value is the index of the new device. Without such a function: an outcome with code Success and `start_ns` 0.
  /// `count`: replaces the number of devices in the call.
  IntOutcome try_make_vdevice(const std::vector<int>& devices, std::optional<int> count = std::nullopt);
  Outcome try_set_net_attributes(std::uint64_t context, const NetAttributes& attributes);
  /// True when the version in use has this function ("irecvConsumed") and the plugin's pointer is not NULL.
  bool has_function(std::string_view slot);

  // Any call of an interface other than the net:
  //
  //   CallOutcome listening = rank.call("listen", {{"dev", 0}});
  //   rank.call("closeListen", {{"listenComm", listening.pointer("*listenComm")}});

  /// Calls a function. `arguments`: by the names of plugin::Parameter; arguments that the version in use lacks are
  /// ignored. Defaults: an output holds poison; a pointer with the name of an open object, such as "collComm", is the
  /// oldest of these; other numbers are 0. Objects that the call opens are closed at the end of the rule.
  /// `about`: what the call is about, for its text: "ProxyStep".
  CallOutcome call(std::string_view function, const CallArguments& arguments = {});
  CallOutcome try_call(std::string_view function, const CallArguments& arguments = {}, std::string_view about = {}) {
    return start_call(function, arguments, about).get();
  }
  /// Errors: std::logic_error if no version of the function has such a parameter.
  Started<CallOutcome> start_call(std::string_view function, const CallArguments& arguments = {},
                                  std::string_view about = {});
  /// The target of a symbolic link on the rank's host; "" if there is no such link.
  std::string link_target(const std::string& path);
  /// The first 4095 bytes of the text at an address that the plugin has stored. An invalid address is safe.
  std::string text_at(std::uint64_t address);

  Listener listen(Device device, const ListenOptions& options = {});
  ListenOutcome try_listen(Device device, const ListenOptions& options = {}) {
    return start_listen(device, options).get();
  }
  Started<ListenOutcome> start_listen(Device device, const ListenOptions& options = {});
  Listener listener(const ListenOutcome& outcome) const;
  /// Connect::poll makes the first call.
  Connect connect(Device device, const Handle& handle, const AttemptOptions& options = {});
  Accept accept(const Listener& listener, const AttemptOptions& options = {});
  /// Unmaps the handles and comm pointers of connects and accepts that are done.
  void free_attempts();
  /// Makes these handles and comm pointers inaccessible: every access crashes the rank.
  void forbid_attempts();
  /// Call the close functions with any pointer.
  Outcome try_close_send(std::uint64_t comm);
  Outcome try_close_recv(std::uint64_t comm);
  Outcome try_close_listen(std::uint64_t comm);
  /// Calls test with any pointer.
  TestOutcome try_test(std::uint64_t request, const TestOptions& options = {});

  // Memory. These functions run on thread `memory`, which makes no plugin calls.

  /// Opens the CUDA driver in the rank. `enter`: the rank's thread `on`, usually `memory`, enters the GPU's context.
  GpuFacts gpu(bool enter);
  /// Allocates zeroed memory between guard pages, or of the GPU.
  Memory allocate(std::size_t size, Placement placement = Placement::kEnd);
  /// Writes the pattern of `seed`, which depends on the seed and the offset only. Different seeds differ in each group
  /// of 8 bytes.
  void fill(const Slice& slice, std::uint64_t seed);
  /// Compares with the pattern of `seed`.
  Check check(const Slice& slice, std::uint64_t seed);
  /// Sets or compares every byte with `value`.
  void set(const Slice& slice, std::uint8_t value);
  Check check_set(const Slice& slice, std::uint8_t value);
  std::vector<std::byte> read(const Slice& slice);
  void write(std::uint64_t address, const std::vector<std::byte>& bytes);

  /// Sends SIGSTOP and waits until every thread has stopped. Calls in progress continue after `thaw`.
  void freeze();
  void thaw();
  /// Ends the process with SIGKILL and waits. This is not a deviation. The rank must not be called afterwards.
  void kill();
  /// True after `kill`, after `exit`, and after a failure for which the process was ended.
  bool reaped() const;
  /// Ends the process by exit(0) on thread `main`. `close_comms`: closes the open comms in an exit handler that runs
  /// after the plugin's, as in a program that destroys its communicators late. The rank must not be called
  /// afterwards. Errors: `Hung`; `Crashed` when the process ends in another way.
  void exit(bool close_comms = false);
  /// Action of a child process of `fork`.
  enum class Child : std::uint8_t { kExits, kRunsAnotherProgram, kCallsInit };
  /// Forks, and waits for the child. Returns its wait status: 0 after a success.
  int fork(Child child);
  /// Starts to count the system and verbs calls that the plugin makes in init, devices, listen, connect and accept, and
  /// makes `failing` fail. Returns what was counted since the previous call of this function.
  CallsInPlugin count_calls(const std::optional<CallInPlugin>& failing = std::nullopt);
  /// Records from now on the calls that the plugin makes of the profiler callback. Rules that follow get another rank.
  void record_profiler(const ProfilerAnswers& answers = {});
  /// Returns the calls since `record_profiler` or the previous call of this function, in the order in which they began
  /// on each thread; later ones get default answers. Errors: `HarnessError` if there were more than 8192.
  std::vector<ProfilerCall> profiler_calls();
  ProcessFacts process();
  /// Lines the plugin logged since the rule got this rank.
  std::vector<LogLine> log();
  /// Output of the rank on stdout and stderr since the rule got it.
  std::string output();

  const std::shared_ptr<RankProcess>& rank_process() const { return process_; }
  /// The argument of `on`; "": the usual thread of each call.
  const std::string& thread() const { return thread_; }

 private:
  bool is_net() const;
  /// Initializes the net of the library, if it has one.
  void init_net();

  std::shared_ptr<RankProcess> process_;
  std::string thread_;
};

}  // namespace plugfest::control
