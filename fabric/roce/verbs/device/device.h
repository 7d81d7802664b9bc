// Verbs devices (ibv_device), one per interface of the current network namespace.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "fabric/roce/nic.h"
#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/roce/verbs/device/interface.h"

// Limits of the NIC, as in the device attributes. Exceeding a size fails with EINVAL, exceeding a number of objects
// with ENOMEM.
namespace plugfest::roce::verbs::limits {

inline constexpr int kWorkRequests = 16384;  ///< per send or receive queue
inline constexpr int kScatterGather = 16;
inline constexpr int kCompletionEntries = 1 << 20;
inline constexpr int kReadsInFlight = 128;
inline constexpr ibv_atomic_cap kAtomics = IBV_ATOMIC_HCA;

/// Kinds of objects whose number is limited, per process and device.
enum class Kind : std::size_t {
  kQueuePair,
  kCompletionQueue,
  kMemoryRegion,
  kMemoryWindow,
  kProtectionDomain,
  kAddressHandle,
  kSharedReceiveQueue,
  kKinds
};

constexpr int max_objects(Kind kind) {
  switch (kind) {
    case Kind::kQueuePair:  // half of a process's number space, so that unused numbers are hard to guess
      return 32768;
    case Kind::kMemoryRegion:
    case Kind::kMemoryWindow:
      return 1 << 18;
    default:
      return 65536;
  }
}

/// Current number of objects by kind.
using AllocationCounts = std::array<std::atomic<int>, static_cast<std::size_t>(Kind::kKinds)>;

}  // namespace plugfest::roce::verbs::limits

namespace plugfest::roce::verbs {

/// The private layout of a device in rdma-core 44 to 65. The …dv_is_supported functions of rdma-core's drivers compare
/// `ops` of any `ibv_device` with their own, so `ops` must exist and be unique to this library.
struct VerbsDevice {
  ibv_device device = {};
  const void* ops = nullptr;
  std::atomic<int> driver_references = 0;
  void* list_links[2] = {};
  void* sysfs = nullptr;
  std::uint64_t core_support = 0;
};

/// A device, shared by all device lists and contexts and freed with the last of them.
struct Device : VerbsDevice {
  /// `folder`: the device's folder in the sysfs view.
  Device(const Interface& its_interface, const std::filesystem::path& folder)
      : interface(its_interface), gids(folder, its_interface.name) {}

  Interface interface;     ///< state when the device was first listed; port queries read the current state
  int references = 0;      ///< held by lists and contexts; guarded by the registry's lock
  std::weak_ptr<Nic> nic;  ///< exists while a context uses it; guarded by the registry's lock
  limits::AllocationCounts allocations = {};
  GidTable gids;
};

/// Counts an object against the limit of its device for the lifetime of the object.
class Allocation {
 public:
  /// Errors: std::system_error with ENOMEM if the limit is reached.
  Allocation(Device& device, limits::Kind kind);
  ~Allocation() { --count_; }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

 private:
  std::atomic<int>& count_;
};

/// Returns the engine of a device, which all contexts share. The first call creates it. Errors: as the constructor of
/// Nic.
std::shared_ptr<Nic> acquire_nic(Device& device);

inline Device& device_of(ibv_device* device) { return *static_cast<Device*>(reinterpret_cast<VerbsDevice*>(device)); }

/// Updates the GID table and the engine from the current state of the interface. `changed`: the kernel has reported a
/// change; then the function also rereads the GID files and writes the port state. Returns the GID table. Thread
/// safety: any thread.
GidEntries update_port(Device& device, Nic& nic, const Interface& interface, bool changed);

/// Add or release a reference; releasing the last one frees the device. Thread safety: any thread.
void acquire_device(Device& device);
void release_device(Device& device);

}  // namespace plugfest::roce::verbs
