// A rank as a rule sees it: a process of its own with one copy of the plugin, driven call by call.
//
//   Listener listener = receiver.listen(Device{0});
//   receiver.freeze();                                   // SIGSTOP: from here the peer cannot help
//   Connect connect = sender.connect(Device{0}, listener.handle());
//   for (int attempt = 0; attempt < 32 && !connect.poll(); ++attempt) {}
//   receiver.thaw();
//   auto [send, receive] = finish(connect, receiver.accept(listener));      // script.h
//
// The three forms of each call, and which thread makes it: see connection.h. What a call does wrong by itself (hangs,
// crashes, writes where it must not) ends the rule with an exception of deviation.h and needs no line in the rule.
// Thread safety: a rank, and everything that came from it, belongs to one thread of the controller at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/connection.h"
#include "harness/control/memory.h"

namespace plugfest::control {

/// What the rank found out about the library when it loaded it, before any init.
struct LibraryFacts {
  /// As asked for, and the file that it turned out to be.
  std::string asked;
  std::string path;
  /// Version of the table in use, and all versions that the library has, newest first.
  int api = 0;
  std::vector<int> apis;
  /// True for nccl:IB and nccl:Socket, which are not libraries.
  bool built_in = false;
  /// The table's first member, read before init. `name_is_null`: it is NULL.
  std::string name;
  bool name_is_null = false;
};

/// One member of a version's properties struct.
struct PropertyField {
  std::string name;
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// Outcome of getProperties: the struct as bytes.
struct PropertiesOutcome : Outcome {
  /// The struct of the version in use, filled with the asked byte before the call.
  std::vector<std::byte> bytes;
  /// Its members, in order; what no member covers is padding.
  std::vector<PropertyField> fields;
  /// Texts at `name` and `pciPath` right after the call (limited to 4095 characters); nullopt: NULL, or the poison.
  std::optional<std::string> name;
  std::optional<std::string> pci_path;

  /// Whether this version has such a member.
  bool has(std::string_view field) const;
  /// An integer member, sign-extended. Errors: std::out_of_range when there is none.
  std::int64_t integer(std::string_view field) const;
  /// Element of an int array member: "vProps.devs".
  std::int64_t integer(std::string_view field, std::size_t index) const;
  /// `latency`.
  float real(std::string_view field) const;
};

/// getProperties' fields, whatever the version; what a version lacks has the value that NCCL's shim gives it.
struct Properties {
  std::string name;
  std::optional<std::string> pci_path;
  std::uint64_t guid = 0;
  int ptr_support = 0;
  int reg_is_global = 0;
  int force_flush = 0;
  int speed_mbit_per_second = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = 0;
  int net_device_type = 0;
  int net_device_version = 0;
  std::vector<int> v_props;
  std::uint64_t max_p2p_bytes = 0;
  std::uint64_t max_coll_bytes = 0;
};

struct InitOptions {
  /// v11+: *ctx at entry; v10+: config->trafficClass; v11+: commId.
  Preset context = Preset::kPoison;
  int traffic_class = -1;
  std::uint64_t comm_id = 0x706c7567;
  /// v10+: NULL instead of a profiler callback.
  bool profiler = true;
};

/// v11+: ncclNetAttr, and what core fills in.
struct NetAttributes {
  std::array<std::int32_t, 4> send = {-1, -1, -1, -1};
  std::array<std::int32_t, 4> receive = {-1, -1, -1, -1};
  std::uint32_t op = ~0u;
  std::uint32_t algo = ~0u;
  std::uint32_t proto = ~0u;
};

/// What the kernel says about the rank's process.
struct ProcessFacts {
  int threads = 0;
  int file_descriptors = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t locked_bytes = 0;
  std::int64_t cpu_ns = 0;
  /// Files mapped executable, each once.
  std::vector<std::string> libraries;
};

/// A line that the plugin gave to NCCL's logger.
struct LogLine {
  int level = 0;  ///< 2 is WARN
  std::uint64_t subsystems = 0;
  std::string file;
  int line = 0;
  std::string text;
};

/// Cheap to copy; copies mean the same process. See the top of this file.
class Rank {
 public:
  explicit Rank(std::shared_ptr<RankProcess> process, std::string thread = {});

  /// "a.eth0".
  const std::string& name() const;
  /// Version of the net interface in use.
  int api() const;
  /// Facts of the latest load.
  const LibraryFacts& library() const;
  pid_t pid() const;
  /// This rank, with every call on that thread, which is started if need be.
  Rank on(std::string_view thread) const;

  // -- Life of the plugin. A rank comes loaded, initialised once and with its devices counted unless the rule asked for
  // a bare one (session.h). These run on `main`.

  /// dlopen and look-up of the table, as the run's settings say. Errors: `Deviation` in the loader's words.
  const LibraryFacts& load();
  /// dlclose.
  void unload();
  /// One more init; the context it gave, NULL if it stored none. The first context is what listen and connect take.
  /// v6 to v10: as through NCCL's own shim, only the first init, and the first after as many finalizes, reaches the
  /// plugin.
  std::uint64_t init(const InitOptions& options = {});
  PointerOutcome try_init(const InitOptions& options = {}) { return start_init(options).get(); }
  Started<PointerOutcome> start_init(const InitOptions& options = {});
  /// Reaches the plugin from v11 on; Success below.
  void finalize(std::uint64_t context);
  Outcome try_finalize(std::uint64_t context) { return start_finalize(context).get(); }
  Started<Outcome> start_finalize(std::uint64_t context);
  /// Contexts of inits not yet finalized, oldest first.
  const std::vector<std::uint64_t>& contexts() const;

  /// Number of devices.
  int devices();
  IntOutcome try_devices(int preset = -7);
  Properties properties(Device device);
  /// `fill`: every byte of the struct at entry.
  PropertiesOutcome try_properties(Device device, std::uint8_t fill = 0x5a);
  Outcome try_set_net_attributes(std::uint64_t context, const NetAttributes& attributes);
  /// Whether the version in use has this slot and the plugin fills it: "irecvConsumed".
  bool has_function(std::string_view slot);

  // -- Connections.

  Listener listen(Device device, const ListenOptions& options = {});
  ListenOutcome try_listen(Device device, const ListenOptions& options = {}) {
    return start_listen(device, options).get();
  }
  Started<ListenOutcome> start_listen(Device device, const ListenOptions& options = {});
  /// The listener that a `try_listen` gave.
  Listener listener(const ListenOutcome& outcome) const;
  /// Calls nothing yet: see Connect::poll.
  Connect connect(Device device, const Handle& handle, const AttemptOptions& options = {});
  Accept accept(const Listener& listener, const AttemptOptions& options = {});
  /// close functions of any pointer, NULL too.
  Outcome try_close_send(std::uint64_t comm);
  Outcome try_close_recv(std::uint64_t comm);
  Outcome try_close_listen(std::uint64_t comm);
  /// test of any pointer, NULL too.
  TestOutcome try_test(std::uint64_t request, const TestOptions& options = {});

  // -- Memory. Runs on `memory`, beside all plugin calls.

  /// Zeroed memory between guard pages.
  Memory allocate(std::size_t size, Placement placement = Placement::kEnd);
  /// Writes the pattern of `seed`. Equal seeds give equal bytes from the first byte on; different ones differ in every
  /// 8 bytes.
  void fill(const Slice& slice, std::uint64_t seed);
  /// Compares with what `fill(slice of that size or longer, seed)` wrote.
  Check check(const Slice& slice, std::uint64_t seed);
  /// Every byte to one value, and the comparison.
  void set(const Slice& slice, std::uint8_t value);
  Check check_set(const Slice& slice, std::uint8_t value);
  std::vector<std::byte> read(const Slice& slice);
  void write(std::uint64_t address, const std::vector<std::byte>& bytes);

  // -- The process.

  /// SIGSTOP, and waits until every thread has stopped. Calls that were started stay under way.
  void freeze();
  /// SIGCONT.
  void thaw();
  /// SIGKILL, and waits for its end. No deviation; the rank can only be released after that.
  void kill();
  bool alive() const;
  ProcessFacts process();
  /// Lines the plugin logged since the rule got this rank.
  std::vector<LogLine> log();
  /// What the rank printed on stdout and stderr since then.
  std::string output();
  /// Sets a variable of the rank's environment (nullopt: removes); for rules that steer a later load or init.
  void set_environment(const std::string& variable, const std::optional<std::string>& value);
  /// Arms a timer that delivers SIGALRM, without SA_RESTART, to one thread of the rank (`prog`, or by `on`) every so
  /// often (XF-36); 0 ends it.
  void interrupt_every(int microseconds);

  /// For this folder's own functions.
  const std::shared_ptr<RankProcess>& remote() const { return process_; }
  /// As given to `on`; "": each call's usual one.
  const std::string& thread() const { return thread_; }

 private:
  std::shared_ptr<RankProcess> process_;
  std::string thread_;
};

}  // namespace plugfest::control
