// Mutants of the DP rules about the values of properties and about repeated calls.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/net.h"

namespace plugfest::mutants {
namespace {

/// Makes getProperties of `net` change each result of the base plugin.
template <typename Change>
void change_properties(Net& net, const Net& good, Change change) {
  net.get_properties = [&good, change](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result == Result::kSuccess) change(*properties);
    return result;
  };
}

/// Makes each device that only devices of `net` knows a further name of the base plugin's first one.
void add_devices(Net& net, const Net& good) {
  const auto real = [&net, &good](int device) {
    int count = 0, all = 0;
    good.devices(&count);
    net.devices(&all);
    return device < count || device >= all ? device : 0;
  };
  net.get_properties = [&net, &good, real](int device, Properties* properties) {
    static char names[2 * abi::kMaxNetDevices][16];
    int count = 0;
    net.devices(&count);
    if (device < 0 || device >= std::min<int>(count, std::size(names))) return good.get_properties(-1, properties);
    const Result result = good.get_properties(real(device), properties);
    if (real(device) == device) return result;
    std::snprintf(names[device], sizeof names[device], "further%d", device);
    properties->name = names[device];
    properties->guid += static_cast<std::uint64_t>(device) << 32;
    properties->vProps = {1, {device}};
    return result;
  };
  net.listen = [&good, real](void* context, int device, auto... arguments) {
    return good.listen(context, real(device), arguments...);
  };
  net.connect = [&good, real](void* context, int device, auto... arguments) {
    return good.connect(context, real(device), arguments...);
  };
}

}  // namespace

// devices writes 129. Those that do not exist are names of the first one.
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
  net.init = [&good](auto... arguments) {
    has_called_init = true;
    return good.init(arguments...);
  };
  net.devices = [&good](int* count) {
    const Result result = good.devices(count);
    if (!has_called_init) --*count;
    return result;
  };
}

// Each getProperties allocates a page that nothing frees.
MUTANT(properties_leak, breaks("DP-06")) {
  change_properties(net, good, [](Properties&) {
    constexpr std::size_t kPage = 4096;
    auto* const page = static_cast<volatile char*>(std::malloc(kPage));
    for (std::size_t i = 0; i < kPage; ++i) page[i] = 1;
  });
}

// maxComms shrinks with each getProperties.
MUTANT(max_comms_counts_down, breaks("DP-06")) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  change_properties(net, good, [calls](Properties& properties) { properties.maxComms -= ++*calls % 100; });
}

// pciPath ends in a slash.
MUTANT(pci_path_ends_in_a_slash, breaks("DP-09")) {
  static std::map<std::string, std::string> paths;
  static std::mutex mutex;
  change_properties(net, good, [](Properties& properties) {
    if (properties.pciPath == nullptr) return;
    const std::lock_guard lock(mutex);
    const std::string good_path = properties.pciPath;
    properties.pciPath = paths.try_emplace(good_path, good_path + "/").first->second.data();
  });
}

// getProperties takes an unknown index for that of the first device.
MUTANT(device_index_unchecked, breaks("DP-07")) {
  net.get_properties = [&good](int device, Properties* properties) {
    int count = 0;
    good.devices(&count);
    return good.get_properties(device >= 0 && device < count ? device : 0, properties);
  };
}

// getProperties reports the speed in Gbit/s.
MUTANT(speed_in_gigabits, breaks("DP-12")) {
  change_properties(net, good, [](Properties& properties) { properties.speed /= 1000; });
}

// getProperties of v12 fills the structure of v8.
MUTANT(older_properties_struct, breaks("DP-12", "DP-15", "DP-18").also("DP-17", "DP-21", "DP-22", "XF-27")) {
  net.get_properties = [&good](int device, Properties* properties) {
    Properties newest{};
    const Result result = good.get_properties(device, &newest);
    abi::v8::Properties older{};
    older.name = newest.name;
    older.pciPath = newest.pciPath;
    older.guid = newest.guid;
    older.ptrSupport = newest.ptrSupport;
    older.regIsGlobal = newest.regIsGlobal;
    older.speed = newest.speed;
    older.port = newest.port;
    older.latency = newest.latency;
    older.maxComms = newest.maxComms;
    older.maxRecvs = newest.maxRecvs;
    std::memset(static_cast<void*>(properties), 0, sizeof *properties);
    std::memcpy(static_cast<void*>(properties), &older, sizeof older);
    return result;
  };
}

// getProperties reports a latency of 0/0.
MUTANT(latency_is_no_number, breaks("DP-13")) {
  change_properties(net, good, [](Properties& properties) { properties.latency = std::nanf(""); });
}

// getProperties reports the type of a later interface.
MUTANT(unknown_device_type, breaks("DP-16")) {
  change_properties(net, good, [](Properties& properties) { properties.netDeviceType = abi::kDeviceGinProxy; });
}

// getProperties reports a bit mask in regIsGlobal.
MUTANT(reg_is_global_is_a_mask, breaks("DP-20")) {
  change_properties(net, good, [](Properties& properties) { properties.regIsGlobal = 6; });
}

// The end of any registration ends those of the same memory on other comms.
MUTANT(global_registration_not_counted, breaks("DP-20").also("MR-04", "MR-18")) {
  struct Cache {
    std::mutex mutex;
    std::map<char*, std::size_t> valid;  // start and size
    std::map<void*, char*> of_handle;
  };
  auto cache = std::make_shared<Cache>();
  change_properties(net, good, [](Properties& properties) { properties.regIsGlobal = 1; });
  net.reg_mr = [&good, cache](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(cache->mutex);
    auto* const start = static_cast<char*>(data);
    auto entry = cache->valid.upper_bound(start);
    const bool inside = entry != cache->valid.begin() && (--entry, start + size <= entry->first + entry->second);
    if (!inside) entry = cache->valid.insert_or_assign(start, size).first;
    cache->of_handle[*mhandle] = entry->first;
    return result;
  };
  net.dereg_mr = [&good, cache](void* comm, void* mhandle) {
    {
      const std::lock_guard lock(cache->mutex);
      cache->valid.erase(cache->of_handle[mhandle]);
      cache->of_handle.erase(mhandle);
    }
    return good.dereg_mr(comm, mhandle);
  };
  net.isend = [&good, cache](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    {
      const std::lock_guard lock(cache->mutex);
      if (cache->valid.count(cache->of_handle[mhandle]) == 0) return Result::kInternalError;
    }
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// getProperties reports -1 in forceFlush.
MUTANT(force_flush_negative, breaks("DP-21")) {
  change_properties(net, good, [](Properties& properties) { properties.forceFlush = -1; });
}

// getProperties reports maxMultiRequestSize 0.
MUTANT(max_multi_request_size_zero, breaks("DP-22")) {
  change_properties(net, good, [](Properties& properties) { properties.maxMultiRequestSize = 0; });
}

// getProperties reports rail -2.
MUTANT(negative_rail, breaks("DP-23")) {
  change_properties(net, good, [](Properties& properties) { properties.railId = -2; });
}

// Calls of getProperties at the same time share a variable for the device.
MUTANT(properties_need_a_lock, breaks("DP-26")) {
  auto current = std::make_shared<std::atomic<int>>(0);
  net.get_properties = [&good, current](int device, Properties* properties) {
    current->store(device);
    for (int i = 0; i < 20; ++i) sched_yield();
    return good.get_properties(current->load(), properties);
  };
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
  net.devices = [](int* count) {
    const Result result = base->devices(count);
    *count += static_cast<int>(made.size());
    return result;
  };
  net.get_properties = [](int device, Properties* properties) {
    int physical = 0;
    if (const Result result = base->devices(&physical); result != Result::kSuccess) return result;
    if (device < physical || device >= physical + static_cast<int>(made.size()))
      return base->get_properties(device, properties);
    const abi::newest::VDevice& members = made[static_cast<std::size_t>(device - physical)];
    const Result result = base->get_properties(members.devs[0], properties);
    properties->name = "merged";
    properties->vProps = members;
    return result;
  };
  net.table->makeVDevice = [](int* device, abi::newest::VDevice* members) {
    const Result result = base->devices(device);
    if (members->ndevs != 1 || members->devs[0] >= *device) return Result::kInvalidUsage;
    made.push_back(*members);
    return result;
  };
}

// makeVDevice reads as many members as the caller says, also none.
MUTANT(empty_virtual_device, breaks("DP-27")) {
  net.table->makeVDevice = [](int*, abi::newest::VDevice* members) {
    if (members->ndevs == 0) std::abort();
    return Result::kInvalidUsage;
  };
}

// makeVDevice hides the devices that it merges.
MUTANT(merged_devices_hidden, breaks("DP-27", "DP-28")) {
  static const Net* const base = &good;
  static abi::newest::VDevice merged{};  // without members: none
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
  net.devices = [&good](int* count) {
    const Result result = good.devices(count);
    if (merged.ndevs != 0) ++*count;
    return result;
  };
  net.get_properties = [&good](int device, Properties* properties) {
    int count = 0;
    if (good.devices(&count) != Result::kSuccess || merged.ndevs == 0) return good.get_properties(device, properties);
    if (device != count) return Result::kInternalError;
    const Result result = good.get_properties(merged.devs[0], properties);
    properties->vProps = merged;
    properties->name = "merged";
    return result;
  };
}

}  // namespace plugfest::mutants
