// The plugin's state in a process.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/mesh/device/gpu.h"
#include "plugins/mesh/handshake/acceptor.h"
#include "plugins/mesh/handshake/connector.h"

namespace mesh {

/// The result of init; NCCL's ctx points to it.
struct Context {
  int traffic_class = -1;
  plugfest::abi::ProfilerCallback profiler = nullptr;
  NetPlan plan;
};

/// A device of NCCL: a NIC, or several NICs that makeVDevice has merged.
struct NetDevice {
  std::string name;               ///< unique
  std::vector<std::size_t> nics;  ///< indexes in the list of NICs
  std::shared_ptr<const Device> first_nic;
  int speed_mbps = 0;  ///< speed of all NICs together
};

/// The NICs, contexts, listeners and unfinished connections of the process. Thread-safe.
class State {
 public:
  /// The state of this process. It is never destroyed, since threads may still call the plugin when the process ends.
  static State& get();

  /// Opens a context. The first one finds the NICs.
  Context* open(int traffic_class, plugfest::abi::ProfilerCallback profiler);
  /// Opens the NICs until the library is unloaded, for interface versions without contexts.
  void open_for_good(plugfest::abi::ProfilerCallback profiler);
  /// Closes a context; null is ignored. The last one releases the NICs. Errors: Failure for an unknown pointer.
  void close(const void* context);

  /// Connections of the context log this plan. An unknown context is ignored.
  void set_plan(const void* context, const NetPlan& plan);

  /// The NICs; empty while no context is open.
  DeviceList devices();
  /// Number of devices: the NICs, then the virtual devices; 0 while no context is open.
  std::size_t device_count();
  /// Errors: Failure (kInvalidArgument) for an index out of range.
  NetDevice device(int index);
  /// Makes a virtual device of `nics`, which lasts until the last context is closed. Returns its index. Errors: Failure
  /// (kInvalidArgument, kInvalidUsage); nothing has changed then.
  int merge(const std::vector<int>& nics);
  /// A copy of `text` that stays valid until the library is unloaded.
  const char* keep(const std::string& text);

  /// Settings of connections of `context`. A null context has no traffic class of its own.
  Transport transport(const void* context);
  /// Settings of connections with this traffic class, or with the environment's if it is not 0 to 255.
  Transport transport_with(int traffic_class);

  Gpu gpu();
  /// Calls `use` with memory whose kind is `type`, NCCL's type of a registration. Errors: Failure for a kind that
  /// ptrSupport does not name, and whatever `use` throws.
  void with_memory(void* data, std::size_t bytes, int type, const std::function<void(const MemoryToRegister&)>& use);

  Attempts& attempts() { return attempts_; }
  Listeners& listeners() { return listeners_; }
  /// Null unless NCCL_MESH_RELAY_SECRET is set and the relay works. The relay serves other hosts until the last
  /// context is closed and no tunnel is open, or until the library is unloaded.
  std::shared_ptr<Relay> relay();

 private:
  friend void close_everything();
  void find();
  void start_relay();
  Context* find_context(const void* context) const;
  Transport transport_locked(int traffic_class) const;
  std::string unique_name(const std::string& wanted) const;

  std::mutex mutex_;  ///< protects the next nine members
  Settings settings_;
  DeviceList devices_;
  std::vector<NetDevice> net_devices_;
  Gpu gpu_;
  std::set<Context*> contexts_;
  std::optional<plugfest::abi::ProfilerCallback> for_good_;  ///< set by `open_for_good`
  std::set<std::string> texts_;
  int process_ = 0;
  std::shared_ptr<Relay> relay_;

  Attempts attempts_;
  Listeners listeners_;
};

/// Closes all NICs, listeners and comms when the library is unloaded or the process ends. Later calls fail. Does
/// nothing in a forked child.
void close_everything();

}  // namespace mesh
