// Takes faults back when the process that made them is killed, for fabrics that outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox/exit_cleanup.h"
#include "harness/faults/script.h"

namespace plugfest::faults {

/// Keeps in mind which interfaces are not as the topology has them, and makes them so when this process is gone.
/// Interfaces that were not broken here keep what others have set. Thread safety: one thread at a time.
class FaultCleanup {
 public:
  /// To be made before ranks are started. The fabric must outlive it. Errors: std::runtime_error.
  explicit FaultCleanup(netns::Fabric& fabric);
  ~FaultCleanup();
  FaultCleanup(const FaultCleanup&) = delete;
  FaultCleanup& operator=(const FaultCleanup&) = delete;

  /// To be called before an interface is changed, and again when its address has changed. `address`: as it is now.
  void broken(const Interface& interface, topology::Ipv4Address address);
  /// It is again as the topology has it.
  void whole(const Interface& interface);

 private:
  /// In memory that the process that comes afterwards shares.
  struct Note {
    std::atomic<bool> broken;
    std::atomic<std::uint32_t> address;
  };

  void mend() const;

  netns::Fabric& fabric_;
  std::map<Interface, const topology::Interface*> interfaces_;
  std::map<Interface, Note*> notes_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<netns::ExitCleanup> afterwards_;
};

/// Gives an interface back the MTU, the address, the carrier and the NIC without faults that it has in the topology.
/// Errors: std::runtime_error; what can be mended is.
void restore_interface(netns::Fabric& fabric, const Interface& interface, const topology::Interface& as_planned,
                       topology::Ipv4Address address_now);

}  // namespace plugfest::faults
