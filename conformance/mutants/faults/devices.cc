// Mutants of the DP rules.
#include <cstdio>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// devices adds the number of devices to what the count was before.
MUTANT(device_count_added, breaks("DP-01")) {
  net.devices = [&good](int* count) {
    const int before = *count;
    const Result result = good.devices(count);
    *count += before;
    return result;
  };
}

// getProperties does not write forceFlush.
MUTANT(force_flush_unwritten, breaks("DP-04").also("DP-21")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const int before = properties->forceFlush;
    const Result result = good.get_properties(device, properties);
    properties->forceFlush = before;
    return result;
  };
}

// getProperties reports no member in vProps.
MUTANT(vprops_without_members, breaks("DP-17").also("LD-11").as_v(10)) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->vProps.ndevs = 0;
    return result;
  };
}

// getProperties reports maxP2pBytes 0.
MUTANT(max_p2p_bytes_zero, breaks("DP-18")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->maxP2pBytes = 0;
    return result;
  };
}

// getProperties stores the names of all devices in one static buffer.
MUTANT(one_buffer_for_all_names, breaks("DP-05").also("DP-07", "DP-26")) {
  net.get_properties = [&good](int device, Properties* properties) {
    static char name[256];
    const Result result = good.get_properties(device, properties);
    std::snprintf(name, sizeof name, "%s", properties->name);
    properties->name = name;
    return result;
  };
}

// getProperties reports the same name for all devices.
MUTANT(one_name_for_all_devices, breaks("DP-08").with_devices_matched()) {
  net.get_properties = [&good](int device, Properties* properties) {
    static const char name[] = "nic";
    const Result result = good.get_properties(device, properties);
    properties->name = name;
    return result;
  };
}

// getProperties reports the same guid and port for all devices.
MUTANT(one_guid_for_all_devices, breaks("DP-10")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->guid = 0x1234;
    properties->port = 1;
    return result;
  };
}

// getProperties reports CUDA memory only in ptrSupport.
MUTANT(no_host_memory, breaks("DP-11").also("MR-09")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->ptrSupport = abi::kPointerCuda;
    return result;
  };
}

// getProperties reports maxRecvs 0.
MUTANT(max_recvs_zero, breaks("DP-15").also("XF-27")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->maxRecvs = 0;
    return result;
  };
}

}  // namespace plugfest::mutants
