// Mutants of DP rules: how devices are named and identified.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// getProperties frees the name that the call before it returned.
MUTANT(name_freed_by_next_call, breaks("DP-05").also("DP-26")) {
  struct Last {
    std::mutex mutex;
    char* name = nullptr;
  };
  net.get_properties = [&good, last = std::make_shared<Last>()](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(last->mutex);
    // The memory stays allocated, so that the rule finds other text in it and not an invalid address.
    if (last->name != nullptr) std::memset(last->name, '#', std::strlen(last->name));
    last->name = strdup(properties->name);
    properties->name = last->name;
    return result;
  };
}

// getProperties reports guid 0 for all devices, which only their ports tell apart.
MUTANT(guid_unknown, breaks("DP-10")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->guid = 0;
    properties->port = device + 1;
    return result;
  };
}

// getProperties promises DMA-BUF memory, and regMrDmaBuf is NULL.
MUTANT(dma_buf_without_function, breaks("DP-11")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->ptrSupport |= abi::kPointerDmaBuf;
    return result;
  };
}

// getProperties lists a device in vProps that does not exist.
MUTANT(unknown_vprops_member, breaks("DP-17").also("LD-11").as_v(10)) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->vProps.devs[0] = 99;
    return result;
  };
}

}  // namespace plugfest::mutants
