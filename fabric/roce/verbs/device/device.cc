// The device list, and queries that do not need an open device.
//
// Listing an interface again returns the same pointer while the device exists: programs compare the devices of two
// lists.
#include "fabric/roce/verbs/device/device.h"

#include <pthread.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/system/process_handlers.h"

namespace plugfest::roce::verbs {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Device*> devices;
};

// Never destroyed: programs may close devices in exit handlers.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// Handlers of fork. Devices and NICs are created under this lock, and have handlers of their own. Two threads may fork
// at the same time.
thread_local bool locked_for_fork = false;
void unlock_after_fork() {
  if (locked_for_fork) registry().mutex.unlock();
}
[[gnu::constructor]] void handle_forks() {
  register_fork_handlers();
  pthread_atfork([] { locked_for_fork = lock_for_fork(registry().mutex); }, unlock_after_fork, unlock_after_fork);
}

// The target of VerbsDevice::ops. Drivers compare the pointer; rdma-core's struct starts with a name.
struct DriverOps {
  const char* name;
  void* unused[16];
};
constexpr DriverOps kDriverOps = {"plugfest-roce", {}};

bool is_same(const Interface& a, const Interface& b) {
  return a.index == b.index && a.name == b.name && a.mac == b.mac;
}

template <std::size_t kSize>
void set_text(char (&field)[kSize], const std::string& text) {
  field[text.copy(field, kSize - 1)] = '\0';
}

std::unique_ptr<Device> make_device(const Interface& interface) {
  const std::string name = device_name(interface);
  const std::string folder = "/sys/class/infiniband/" + name;
  auto created = std::make_unique<Device>(interface, folder);
  const std::string uverbs = node_name(interface);
  created->ops = &kDriverOps;
  created->device.node_type = IBV_NODE_CA;
  created->device.transport_type = IBV_TRANSPORT_IB;
  set_text(created->device.name, name);
  set_text(created->device.dev_name, uverbs);
  set_text(created->device.dev_path, "/sys/class/infiniband_verbs/" + uverbs);
  set_text(created->device.ibdev_path, folder);
  return created;
}

bool ecn_from_environment() {
  const char* const text = std::getenv("PLUGFEST_ROCE_ECN");
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw std::runtime_error("PLUGFEST_ROCE_ECN \"" + std::string(value) + "\": expected 0 or 1");
}

// Programs only get an errno value; errors of the user's configuration go to standard error.
std::shared_ptr<Nic> make_nic(NicSettings settings) {
  try {
    settings.ecn = ecn_from_environment();
    return std::make_shared<Nic>(std::move(settings));
  } catch (const std::system_error&) {
    throw;
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "plugfest: %s\n", error.what());
    throw std::system_error(EINVAL, std::generic_category());
  }
}

void release_locked(Registry& known, Device& device) {
  if (--device.references > 0) return;
  std::erase(known.devices, &device);
  delete &device;
}

}  // namespace

Allocation::Allocation(Device& device, limits::Kind kind) : count_(device.allocations[static_cast<std::size_t>(kind)]) {
  if (count_.fetch_add(1) < limits::max_objects(kind)) return;
  --count_;
  fail(ENOMEM);
}

void acquire_device(Device& device) {
  const std::lock_guard lock(registry().mutex);
  ++device.references;
}

std::shared_ptr<Nic> acquire_nic(Device& device) {
  const std::lock_guard lock(registry().mutex);
  std::shared_ptr<Nic> nic = device.nic.lock();
  // After fork() the child cannot use the parent's engine; it creates its own.
  if (nic == nullptr || nic->in_child()) {
    const Interface now = read_nic_interface(device.interface.index).value_or(device.interface);
    NicSettings settings;
    settings.addresses = now.addresses;
    settings.interface_index = now.index;
    settings.mtu_bytes = now.mtu_bytes;
    settings.rate_mbps = link_speed(now.speed_mbps).rate_mbps;
    settings.device = device.device.name;
    settings.device_folder = device.device.ibdev_path;
    nic = make_nic(std::move(settings));
    update_port(device, *nic, now, true);
    device.nic = nic;
  }
  return nic;
}

GidEntries update_port(Device& device, Nic& nic, const Interface& interface, bool changed) {
  const GidEntries gids = device.gids.update(interface.addresses, changed, interface.order);
  if (changed) write_port_state(device.device.ibdev_path, interface.up);  // fails without a sysfs view
  nic.set_addresses({gids.begin(), gids.end()}, interface.order);
  nic.set_mtu(interface.mtu_bytes, interface.order);
  return gids;
}

void release_device(Device& device) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  release_locked(known, device);
}

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  return pointer_or_errno([&]() -> ibv_device** {
    const std::vector<Interface> interfaces = list_nic_interfaces();
    auto list = std::make_unique<ibv_device*[]>(interfaces.size() + 1);
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    // Allocates all memory before it adds references: a failure leaks nothing.
    std::vector<std::unique_ptr<Device>> created;
    std::vector<Device*> listed;
    for (const Interface& interface : interfaces) {
      Device* found = nullptr;
      for (Device* device : known.devices)
        if (is_same(device->interface, interface)) found = device;
      if (found == nullptr) found = created.emplace_back(make_device(interface)).get();
      listed.push_back(found);
    }
    known.devices.reserve(known.devices.size() + created.size());
    for (std::unique_ptr<Device>& device : created) known.devices.push_back(device.release());
    for (std::size_t i = 0; i < listed.size(); ++i) {
      ++listed[i]->references;
      list[i] = &listed[i]->device;
    }
    if (num_devices != nullptr) *num_devices = static_cast<int>(listed.size());
    return list.release();
  });
}

void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  for (ibv_device** entry = list; *entry != nullptr; ++entry) release_device(device_of(*entry));
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) { return device_of(device).interface.index; }

__be64 ibv_get_device_guid(ibv_device* device) { return guid_of(device_of(device).interface); }

// Functions for access to sysfs. The public headers no longer declare them, but librdmacm and old programs call them.
const char* ibv_get_sysfs_path() { return "/sys"; }

int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  return value_or_errno([&] {
    const std::string path = std::string(dir) + "/" + file;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "re"), &std::fclose);
    if (stream == nullptr) return -1;
    std::size_t length = std::fread(buf, 1, size, stream.get());
    if (length > 0 && buf[length - 1] == '\n') --length;
    if (length < size) buf[length] = '\0';
    return static_cast<int>(length);
  });
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
