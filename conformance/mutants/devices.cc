// Mutants of the DP rules.
#include <cstdio>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// Says Success in devices and does not say how many.
MUTANT(devices_unwritten, breaks("DP-01")) {
  net.devices = [&good](int* count) {
    const int before = *count;
    const Result result = good.devices(count);
    *count = before;
    return result;
  };
}

// Forgets one field of the properties.
MUTANT(force_flush_unwritten, breaks("DP-04")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const int before = properties->forceFlush;
    const Result result = good.get_properties(device, properties);
    properties->forceFlush = before;
    return result;
  };
}

// Counts more members of a device than the array has.
MUTANT(too_many_members, breaks("DP-17").as_v(10)) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->vProps.ndevs = 64;
    return result;
  };
}

// Leaves the largest message at 0.
MUTANT(no_bytes_at_most, breaks("DP-18")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->maxP2pBytes = 0;
    return result;
  };
}

// Keeps the names of all devices in one place.
MUTANT(one_buffer_for_all_names, breaks("DP-05")) {
  net.get_properties = [&good](int device, Properties* properties) {
    static char name[256];
    const Result result = good.get_properties(device, properties);
    std::snprintf(name, sizeof name, "%s", properties->name);
    properties->name = name;
    return result;
  };
}

// Calls all devices by one name.
MUTANT(one_name_for_all_devices, breaks("DP-08")) {
  net.get_properties = [&good](int device, Properties* properties) {
    static const char name[] = "nic";
    const Result result = good.get_properties(device, properties);
    properties->name = name;
    return result;
  };
}

// Gives all devices one guid.
MUTANT(one_guid_for_all_devices, breaks("DP-10")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->guid = 0x1234;
    properties->port = 1;
    return result;
  };
}

// Takes GPU memory only.
MUTANT(no_host_memory, breaks("DP-11")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->ptrSupport = abi::kPointerCuda;
    return result;
  };
}

// Says that it receives into no buffer.
MUTANT(receives_into_nothing, breaks("DP-15")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->maxRecvs = 0;
    return result;
  };
}

}  // namespace plugfest::mutants
