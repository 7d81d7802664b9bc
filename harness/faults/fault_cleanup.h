// Removes faults from a background fabric when the process that injected them is killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox/exit_cleanup.h"
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

  /// Call it before an interface is changed, and after its address has changed. `address`: its current address.
  void record_change(const Interface& interface, topology::Ipv4Address address);
  /// Call it after an interface has been restored to the topology's state.
  void record_restoration(const Interface& interface);

 private:
  /// Lives in memory that is shared with the process that runs the cleanup.
  struct Note {
    std::atomic<bool> changed;
    std::atomic<std::uint32_t> address;
  };

  void restore_all() const;

  netns::Fabric& fabric_;
  std::map<Interface, const topology::Interface*> interfaces_;
  std::map<Interface, Note*> notes_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<netns::ExitCleanup> exit_cleanup_;
};

/// Restores the topology's MTU, address and link state of an interface, and removes its packet faults. Errors:
/// std::runtime_error for the first failed step, after all steps have been tried.
void restore_interface(netns::Fabric& fabric, const Interface& interface, const topology::Interface& original,
                       topology::Ipv4Address current_address);

}  // namespace plugfest::faults
