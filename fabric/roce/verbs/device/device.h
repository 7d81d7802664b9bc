// Verbs devices: the objects behind `ibv_device` pointers, made from the interfaces of the current network namespace.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "fabric/roce/nic.h"
#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/roce/verbs/device/interface.h"
#include "fabric/roce/verbs/device/limits.h"

namespace plugfest::roce::verbs {

/// How rdma-core (44 to 65) lays out a device. Its drivers' …dv_is_supported functions get any `ibv_device` and compare
/// the `ops` behind it with their own, so it must be there and be nobody else's.
struct VerbsDevice {
  ibv_device device = {};
  const void* ops = nullptr;
  std::atomic<int> driver_references = 0;
  void* list_links[2] = {};
  void* sysfs = nullptr;
  std::uint64_t core_support = 0;
};

/// One device. Shared by every list and every context that shows it; see device.cc for its lifetime.
struct Device : VerbsDevice {
  /// `folder`: of the sysfs view.
  Device(const Interface& its_interface, const std::filesystem::path& folder)
      : interface(its_interface), gids(folder, its_interface.name) {}

  Interface interface;     ///< as it was when the device was first listed; port queries read it anew
  int references = 0;      ///< lists and contexts, guarded by the registry's lock
  std::weak_ptr<Nic> nic;  ///< while a context uses it, guarded by the registry's lock
  limits::Taken taken = {};
  GidTable gids;
};

/// One object's place among those that the device may have, for its own lifetime.
class Share {
 public:
  /// Errors: std::system_error with ENOMEM if there are as many as may be.
  Share(Device& device, limits::Kind kind);
  ~Share() { --taken_; }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

 private:
  std::atomic<int>& taken_;
};

/// The engine of a device, started by its first context and shared by all. Errors: as the constructor of Nic.
std::shared_ptr<Nic> nic_of(Device& device);

inline Device& device_of(ibv_device* device) { return *static_cast<Device*>(reinterpret_cast<VerbsDevice*>(device)); }

/// Has the device's GIDs and the engine follow what may have changed since. `announced`: the kernel said that something
/// did. Returns the GIDs by index. Thread safety: any thread.
GidPlaces follow(Device& device, Nic& nic, const Interface& interface, bool announced);

/// Counts one more user of the device, or one less; the last one frees it. Thread safety: any thread.
void keep_device(Device& device);
void release_device(Device& device);

}  // namespace plugfest::roce::verbs
