// Injects faults into a fabric and removes them, even if the process that injected them is killed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/supervision.h"
#include "fabric/roce/faults/plan.h"
#include "harness/faults/ranks_by_host.h"
#include "harness/faults/script.h"

namespace plugfest::faults {

/// Records which interfaces this process has changed, and restores them to the topology's state after this process has
/// exited. Other interfaces keep their settings. Thread safety: one thread at a time.
class FaultCleanup {
 public:
  /// Construct it before ranks are started. `fabric` must outlive it. Errors: std::runtime_error.
  explicit FaultCleanup(netns::Fabric& fabric);
  ~FaultCleanup();
  FaultCleanup(const FaultCleanup&) = delete;
  FaultCleanup& operator=(const FaultCleanup&) = delete;

  /// Call it before an interface is changed. `from`, `to`: its address before and after the change. If this process is
  /// killed during the change, the interface has one of them or none.
  void record_change(const Interface& interface, topology::Ipv4Address from, topology::Ipv4Address to);
  /// Call it after an interface has been restored to the topology's state.
  void record_restoration(const Interface& interface);

 private:
  /// A record in memory that is shared with the process that runs the cleanup.
  struct Note {
    std::atomic<bool> changed;
    std::array<std::atomic<std::uint32_t>, 2> addresses;
  };

  void restore_all() const;

  netns::Fabric& fabric_;
  std::map<Interface, const topology::Interface*> interfaces_;
  std::map<Interface, Note*> notes_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<netns::ExitCleanup> exit_cleanup_;
};

/// Owns the active faults of a fabric. Faults can overlap: an interface is down while at least one fault takes it down,
/// and has the smallest MTU and the newest address of its faults; packet faults add up. Thread safety: any thread.
class Injector {
 public:
  /// Both arguments must outlive the injector.
  Injector(netns::Fabric& fabric, RanksByHost& ranks) : fabric_(fabric), ranks_(ranks) {}
  ~Injector();  ///< ends all active faults
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  const topology::Graph& graph() const { return fabric_.graph(); }

  /// Makes the faults end even if this process is killed. Required for fabrics that outlive the process. Call it before
  /// ranks are started. Errors: std::runtime_error.
  void clean_up_when_killed() { cleanup_ = std::make_unique<FaultCleanup>(fabric_); }

  /// Injects a fault. Returns an id for end(). Errors: std::runtime_error; the fault is then not active.
  std::uint64_t begin(const Fault& fault);
  /// Packets that the NICs of these interfaces have sent and received so far, and those that faults dropped. Switches
  /// have no NIC. Errors: std::runtime_error.
  std::uint64_t packets(const std::vector<Interface>& interfaces);
  /// Counters of a host interface's NIC that healthy traffic does not increase: "unknown_queue_pairs" and others,
  /// always the same names in the same order. Errors: std::runtime_error.
  std::vector<std::pair<std::string_view, std::uint64_t>> trouble_counters(const Interface& interface);
  /// Ends a fault. Effects that another active fault requires remain. Errors: std::runtime_error.
  void end(std::uint64_t id);

 private:
  struct InterfaceState {
    bool up = true;
    int mtu_bytes = 0;
    topology::Ipv4Address address;
    std::vector<roce::FaultPlan> packets = {};
    bool operator==(const InterfaceState&) const = default;
  };

  /// The state without faults, as in the topology.
  InterfaceState original_state(const Interface& interface) const;
  /// The state that the active faults require.
  InterfaceState target_state(const Interface& interface) const;
  roce::FaultPlan plan_for(const Fault& fault, const Interface& interface) const;
  /// Applies the difference between the current and the target state.
  void update(const Interface& interface);
  void update_host(const std::string& host);
  void update(const Fault& fault);

  netns::Fabric& fabric_;
  RanksByHost& ranks_;
  std::unique_ptr<FaultCleanup> cleanup_;
  std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  /// Active faults by id, in the order in which they began.
  std::map<std::uint64_t, Fault> active_;
  /// The current state of each interface that differs from the topology.
  std::map<Interface, InterfaceState> states_;
};

/// A fault that is active as long as the object exists.
class ActiveFault {
 public:
  ActiveFault(Injector& injector, const Fault& fault) : injector_(&injector), id_(injector.begin(fault)) {}
  ~ActiveFault();
  ActiveFault(const ActiveFault&) = delete;
  ActiveFault& operator=(const ActiveFault&) = delete;
  /// Errors: as Injector::end.
  void end();

 private:
  Injector* injector_;
  std::uint64_t id_;
};

}  // namespace plugfest::faults
