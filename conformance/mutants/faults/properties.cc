// Mutants of the DP rules about the values of properties.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/net.h"

namespace plugfest::mutants {

// getProperties does not write forceFlush.
MUTANT(force_flush_unwritten, breaks("DP-04").also("DP-21")) {
  net.get_properties = [&good](GetProperties call) {
    const int before = call.properties->forceFlush;
    const Result result = good.get_properties(call);
    call.properties->forceFlush = before;
    return result;
  };
}

// Each getProperties leaks a page.
MUTANT(properties_leak, breaks("DP-06")) {
  change_properties(net, [](Properties&) { leak(4096); });
}

// maxComms shrinks with each getProperties.
MUTANT(max_comms_counts_down, breaks("DP-06")) {
  static std::atomic<int> calls{0};
  change_properties(net, [](Properties& properties) { properties.maxComms -= ++calls % 100; });
}

// pciPath ends in a slash.
MUTANT(pci_path_ends_in_a_slash, breaks("DP-09")) {
  auto& paths = kept<std::map<std::string, std::string>>();
  auto& mutex = kept<std::mutex>();
  change_properties(net, [&](Properties& properties) {
    if (properties.pciPath == nullptr) return;
    const std::lock_guard lock(mutex);
    const std::string good_path = properties.pciPath;
    properties.pciPath = paths.try_emplace(good_path, good_path + "/").first->second.data();
  });
}

// getProperties reports CUDA memory only in ptrSupport.
MUTANT(no_host_memory, breaks("DP-11").also("MR-09")) { set_property(net, &Properties::ptrSupport, abi::kPointerCuda); }

// getProperties promises DMA-BUF memory, and regMrDmaBuf is NULL.
MUTANT(dma_buf_without_function, breaks("DP-11")) {
  change_properties(net, [](Properties& properties) { properties.ptrSupport |= abi::kPointerDmaBuf; });
}

// getProperties reports the speed in Gbit/s.
MUTANT(speed_in_gigabits, breaks("DP-12")) {
  change_properties(net, [](Properties& properties) { properties.speed /= 1000; });
}

// getProperties of v12 fills the struct of v8.
MUTANT(older_properties_struct, breaks("DP-12", "DP-15", "DP-18").also("DP-17", "DP-21", "DP-22", "XF-27")) {
  net.get_properties = [&good](GetProperties call) {
    Properties newest{};
    const Result result = good.get_properties({call.device, &newest});
    const abi::v8::Properties older{.name = newest.name,
                                    .pciPath = newest.pciPath,
                                    .guid = newest.guid,
                                    .ptrSupport = newest.ptrSupport,
                                    .regIsGlobal = newest.regIsGlobal,
                                    .speed = newest.speed,
                                    .port = newest.port,
                                    .latency = newest.latency,
                                    .maxComms = newest.maxComms,
                                    .maxRecvs = newest.maxRecvs,
                                    .netDeviceType = {},
                                    .netDeviceVersion = {}};
    std::memset(static_cast<void*>(call.properties), 0, sizeof *call.properties);
    std::memcpy(static_cast<void*>(call.properties), &older, sizeof older);
    return result;
  };
}

// getProperties reports a latency of 0/0.
MUTANT(latency_is_no_number, breaks("DP-13")) { set_property(net, &Properties::latency, std::nanf("")); }

// getProperties reports a device type of a later interface version.
MUTANT(unknown_device_type, breaks("DP-16")) { set_property(net, &Properties::netDeviceType, abi::kDeviceGinProxy); }

// getProperties reports maxRecvs 0.
MUTANT(max_recvs_zero, breaks("DP-15").also("XF-27")) { set_property(net, &Properties::maxRecvs, 0); }

// maxRecvs depends on the adapter.
MUTANT(max_recvs_of_the_adapter, breaks("CN-31").also("XF-27")) {
  change_properties(net, [](Properties& properties) {
    const std::uint64_t mixed = properties.guid * 0x9e3779b97f4a7c15ull;
    properties.maxRecvs = 1 + static_cast<int>(mixed >> 32 & 0x3f) % properties.maxRecvs;
  });
}

// getProperties reports maxP2pBytes 0.
MUTANT(max_p2p_bytes_zero, breaks("DP-18")) { set_property(net, &Properties::maxP2pBytes, 0); }

// getProperties reports a bit mask in regIsGlobal.
MUTANT(reg_is_global_is_a_mask, breaks("DP-20")) { set_property(net, &Properties::regIsGlobal, 6); }

// deregMr also ends other registrations of the same memory on other comms.
MUTANT(global_registration_not_counted, breaks("DP-20").also("MR-04", "MR-18")) {
  struct Cache {
    std::mutex mutex;
    std::map<char*, std::size_t> valid;  // start and size
    std::map<void*, char*> of_handle;
  };
  auto& cache = kept<Cache>();
  set_property(net, &Properties::regIsGlobal, 1);
  on_success(net.reg_mr, [&](Register call) {
    const std::lock_guard lock(cache.mutex);
    auto* const start = static_cast<char*>(call.data);
    auto entry = cache.valid.upper_bound(start);
    const bool inside = entry != cache.valid.begin() && (--entry, start + call.size <= entry->first + entry->second);
    if (!inside) entry = cache.valid.insert_or_assign(start, call.size).first;
    cache.of_handle[*call.mhandle] = entry->first;
  });
  before(net.dereg_mr, [&](Deregister call) {
    const std::lock_guard lock(cache.mutex);
    cache.valid.erase(cache.of_handle[call.mhandle]);
    cache.of_handle.erase(call.mhandle);
  });
  refuse(net.isend, Result::kInternalError, [&](Send send) {
    const std::lock_guard lock(cache.mutex);
    return cache.valid.count(cache.of_handle[send.mhandle]) == 0;
  });
}

// getProperties reports -1 in forceFlush.
MUTANT(force_flush_negative, breaks("DP-21")) { set_property(net, &Properties::forceFlush, -1); }

// getProperties reports maxMultiRequestSize 0.
MUTANT(max_multi_request_size_zero, breaks("DP-22")) { set_property(net, &Properties::maxMultiRequestSize, 0); }

// getProperties reports rail -2.
MUTANT(negative_rail, breaks("DP-23")) { set_property(net, &Properties::railId, -2); }

}  // namespace plugfest::mutants
