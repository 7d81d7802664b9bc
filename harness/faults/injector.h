// Breaks a fabric and mends it: the one owner of what is wrong with it at the moment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/roce/faults/plan.h"
#include "harness/faults/fault_cleanup.h"
#include "harness/faults/ranks_by_host.h"
#include "harness/faults/script.h"

namespace plugfest::faults {

/// Faults may overlap: an interface is up again when the last fault that wants it down has ended, and has the smallest
/// MTU and the newest address that any asks for; packet faults add up. Thread safety: any thread.
class Injector {
 public:
  /// Both must outlive it.
  Injector(netns::Fabric& fabric, RanksByHost& processes) : fabric_(fabric), processes_(processes) {}
  ~Injector();  ///< ends what is still active
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  const topology::Graph& graph() const { return fabric_.graph(); }

  /// Has faults taken back even if this process is killed: for a fabric that outlives it. To be called before ranks are
  /// started. Errors: std::runtime_error.
  void clean_up_when_killed() { cleanup_ = std::make_unique<FaultCleanup>(fabric_); }

  /// Makes it happen, and returns when it has; a number to end it by. Errors: std::runtime_error; it is not active
  /// then.
  std::uint64_t begin(const Fault& fault);
  /// Mends it, as far as no other fault wants the same. Errors: std::runtime_error.
  void end(std::uint64_t id);

 private:
  /// How an interface is, or shall be.
  struct Condition {
    bool up = true;
    int mtu_bytes = 0;
    topology::Ipv4Address address;
    std::vector<roce::FaultPlan> packets = {};
    bool operator==(const Condition&) const = default;
  };

  /// As the topology has it.
  Condition whole(const Interface& interface) const;
  Condition wanted(const Interface& interface) const;
  roce::FaultPlan plan_for(const Fault& fault, const Interface& interface) const;
  void settle(const Interface& interface);
  void settle_host(const std::string& host);
  void settle(const Fault& fault);

  netns::Fabric& fabric_;
  RanksByHost& processes_;
  std::unique_ptr<FaultCleanup> cleanup_;
  std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  /// In the order in which they began.
  std::map<std::uint64_t, Fault> active_;
  /// Of interfaces that are not whole.
  std::map<Interface, Condition> conditions_;
};

/// A fault for as long as the object lives.
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
