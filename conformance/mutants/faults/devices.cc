// Mutants of the DP rules about names, numbers and virtual devices.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Adds devices that only `net` knows, as further names of the base plugin's first device.
void add_devices(Net& net, const Net& good) {
  const auto real = [&net, &good](int device) {
    int count = 0, all = 0;
    good.devices(&count);
    net.devices(&all);
    return device < count || device >= all ? device : 0;
  };
  net.get_properties = [&net, &good, real](GetProperties call) {
    static char names[2 * abi::kMaxNetDevices][16];
    const int device = call.device;
    int count = 0;
    net.devices(&count);
    if (device < 0 || device >= std::min<int>(count, std::size(names)))
      return good.get_properties({-1, call.properties});
    const Result result = good.get_properties({real(device), call.properties});
    if (real(device) == device) return result;
    std::snprintf(names[device], sizeof names[device], "further%d", device);
    call.properties->name = names[device];
    call.properties->guid += static_cast<std::uint64_t>(device) << 32;
    call.properties->vProps = {1, {device}};
    return result;
  };
  before(net.listen, [real](Listen& listen) { listen.device = real(listen.device); });
  before(net.connect, [real](Connect& connect) { connect.device = real(connect.device); });
}

}  // namespace

// devices adds the number of devices to the previous value of the count.
MUTANT(device_count_added, breaks("DP-01")) {
  net.devices = [&good](int* count) {
    const int before = *count;
    const Result result = good.devices(count);
    *count += before;
    return result;
  };
}

// devices writes 129. The devices that do not exist are names of the first one.
MUTANT(device_129_exists, breaks("DP-02")) {
  net.devices = [](int* count) {
    *count = abi::kMaxNetDevices + 1;
    return Result::kSuccess;
  };
  add_devices(net, good);
}

// devices misses one device on threads that have not called init.
MUTANT(devices_depend_on_the_thread, breaks("DP-03")) {
  static thread_local bool has_called_init = false;
  before(net.init, [](Init) { has_called_init = true; });
  on_success(net.devices, [](int* count) { *count -= has_called_init ? 0 : 1; });
}

// getProperties stores the names of all devices in one static buffer.
MUTANT(one_buffer_for_all_names, breaks("DP-05").also("DP-07", "DP-26")) {
  change_properties(net, [](Properties& properties) {
    static char name[256];
    std::snprintf(name, sizeof name, "%s", properties.name);
    properties.name = name;
  });
}

// getProperties frees the name that the previous call returned.
MUTANT(name_freed_by_next_call, breaks("DP-05").also("DP-26")) {
  static std::mutex mutex;
  static char* last = nullptr;
  change_properties(net, [](Properties& properties) {
    const std::lock_guard lock(mutex);
    // The memory stays allocated: the rule finds other text in it, not an invalid address.
    if (last != nullptr) std::memset(last, '#', std::strlen(last));
    properties.name = last = strdup(properties.name);
  });
}

// getProperties treats an unknown index as the index of the first device.
MUTANT(device_index_unchecked, breaks("DP-07")) {
  before(net.get_properties, [&good](GetProperties& call) {
    int count = 0;
    good.devices(&count);
    if (call.device < 0 || call.device >= count) call.device = 0;
  });
}

// getProperties reports the same name for all devices.
MUTANT(one_name_for_all_devices, breaks("DP-08").with_devices_matched()) {
  static const char name[] = "nic";
  set_property(net, &Properties::name, name);
}

namespace {

void report_one_port(Net& net) {
  change_properties(net, [](Properties& properties) {
    properties.guid = 0x1234;
    properties.port = 1;
  });
}

}  // namespace

// getProperties reports the same guid and port for all devices.
MUTANT(one_guid_for_all_devices, breaks("DP-10")) { report_one_port(net); }

// All devices are virtual functions of one port: DP-10 only warns.
MUTANT(devices_share_a_port, breaks().also("DP-10")) { report_one_port(net); }

// getProperties reports guid 0 for all devices; only their ports differ.
MUTANT(guid_unknown, breaks("DP-10")) {
  on_success(net.get_properties, [](GetProperties call) {
    call.properties->guid = 0;
    call.properties->port = call.device + 1;
  });
}

// getProperties reports no member in vProps.
MUTANT(vprops_without_members, breaks("DP-17").also("IN-20", "LD-11").as_v(10)) {
  change_properties(net, [](Properties& properties) { properties.vProps.ndevs = 0; });
}

// getProperties lists a device in vProps that does not exist.
MUTANT(unknown_vprops_member, breaks("DP-17").also("IN-20", "LD-11").as_v(10)) {
  change_properties(net, [](Properties& properties) { properties.vProps.devs[0] = 99; });
}

// Calls of getProperties at the same time share a variable for the device.
MUTANT(properties_need_a_lock, breaks("DP-26")) {
  static std::atomic<int> current{0};
  before(net.get_properties, [](GetProperties& call) {
    current = call.device;
    for (int i = 0; i < 20; ++i) sched_yield();
    call.device = current;
  });
}

// makeVDevice returns the index of a device that does not exist.
MUTANT(virtual_device_missing, breaks("DP-27")) {
  net.table->makeVDevice = [](int* device, abi::newest::VDevice*) {
    *device = 100;
    return Result::kSuccess;
  };
}

// makeVDevice adds a device that listen and connect do not know.
MUTANT(virtual_device_without_connections, breaks("DP-27")) {
  static const Net* base = &good;
  static std::vector<abi::newest::VDevice> made;
  on_success(net.devices, [](int* count) { *count += static_cast<int>(made.size()); });
  net.get_properties = [](GetProperties call) {
    int physical = 0;
    if (const Result result = base->devices(&physical); result != Result::kSuccess) return result;
    if (call.device < physical || call.device >= physical + static_cast<int>(made.size()))
      return base->get_properties(call);
    const abi::newest::VDevice& members = made[static_cast<std::size_t>(call.device - physical)];
    const Result result = base->get_properties({members.devs[0], call.properties});
    call.properties->name = "merged";
    call.properties->vProps = members;
    return result;
  };
  net.table->makeVDevice = [](int* device, abi::newest::VDevice* members) {
    const Result result = base->devices(device);
    if (members->ndevs != 1 || members->devs[0] >= *device) return Result::kInvalidUsage;
    made.push_back(*members);
    return result;
  };
}

// makeVDevice reads as many members as the caller says, even none.
MUTANT(empty_virtual_device, breaks("DP-27")) {
  net.table->makeVDevice = [](int*, abi::newest::VDevice* members) {
    if (members->ndevs == 0) std::abort();
    return Result::kInvalidUsage;
  };
}

namespace {

// The devices that makeVDevice of the base plugin has made of several members. The last byte of the handle of a
// listener on such a device tells its first member. Thread safety: any thread.
class MergedDevices {
 public:
  static MergedDevices& install(Net& net, const Net& good) {
    static MergedDevices merged;
    static const Net* const base = &good;
    net.table->makeVDevice = [](int* device, abi::newest::VDevice* members) {
      const Result result = base->make_vdevice(device, members);
      const std::lock_guard lock(merged.mutex_);
      if (result == Result::kSuccess && members->ndevs > 1) merged.first_members_[*device] = members->devs[0];
      return result;
    };
    on_success(net.listen, [](Listen listen) { last_byte(listen.handle) = merged.mark_of(listen.device); });
    return merged;
  }

  // Whether both ends of a connection are such devices, and their first members have different numbers.
  bool differ(const Connect& connect) const {
    const unsigned char own = mark_of(connect.device), other = last_byte(connect.handle);
    return own != 0 && other != 0 && own != other;
  }

 private:
  static unsigned char& last_byte(void* handle) { return static_cast<unsigned char*>(handle)[abi::kHandleBytes - 1]; }
  // 0: no such device.
  unsigned char mark_of(int device) const {
    const std::lock_guard lock(mutex_);
    const auto found = first_members_.find(device);
    return found == first_members_.end() ? 0 : static_cast<unsigned char>(found->second + 1);
  }

  mutable std::mutex mutex_;
  std::map<int, int> first_members_;
};

}  // namespace

// The members of two merged devices are paired by their position, and connect fails if these do not reach each other.
MUTANT(members_paired_by_position, breaks("DP-29")) {
  MergedDevices& merged = MergedDevices::install(net, good);
  refuse(net.connect, Result::kSystemError, [&](Connect connect) { return merged.differ(connect); });
}

// Each member of a merged device carries one half of a message. With another order at the receiver the halves change
// places.
MUTANT(halves_follow_the_order_of_members, breaks("DP-29")) {
  MergedDevices& merged = MergedDevices::install(net, good);
  auto& crossed = kept<PointerSet>();
  on_success(net.connect, [&](Connect connect) {
    if (merged.differ(connect)) crossed.insert(*connect.comm);
  });
  before(net.close_send, [&](void* comm) { crossed.erase(comm); });
  net.isend = [&](Send send) {
    if (!crossed.contains(send.comm)) return good.isend(send);
    auto* const first = static_cast<unsigned char*>(send.data);
    auto* const second = first + send.size / 2;
    std::swap_ranges(first, second, second);
    const Result result = good.isend(send);
    if (result != Result::kSuccess || *send.request == nullptr) std::swap_ranges(first, second, second);
    return result;
  };
}

// makeVDevice hides the devices that it merges.
MUTANT(merged_devices_hidden, breaks("DP-27", "DP-28")) {
  static const Net* const base = &good;
  static abi::newest::VDevice merged{};  // without members: no device
  net.table->makeVDevice = [](int* device, abi::newest::VDevice* members) {
    const std::set<int> distinct(members->devs, members->devs + members->ndevs);
    int count = 0;
    const Result result = base->devices(&count);
    const bool valid = merged.ndevs == 0 && distinct.size() > 1 && std::ssize(distinct) == members->ndevs &&
                       *distinct.begin() >= 0 && *distinct.rbegin() < count;
    if (result != Result::kSuccess || !valid) return Result::kInvalidUsage;
    merged = *members;
    *device = count;
    return Result::kSuccess;
  };
  on_success(net.devices, [](int* count) { *count += merged.ndevs != 0 ? 1 : 0; });
  net.get_properties = [](GetProperties call) {
    int count = 0;
    if (base->devices(&count) != Result::kSuccess || merged.ndevs == 0) return base->get_properties(call);
    if (call.device != count) return Result::kInternalError;
    const Result result = base->get_properties({merged.devs[0], call.properties});
    call.properties->vProps = merged;
    call.properties->name = "merged";
    return result;
  };
}

}  // namespace plugfest::mutants
