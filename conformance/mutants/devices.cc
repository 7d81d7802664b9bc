// Mutants of the DP and IN rules.
#include <atomic>
#include <memory>

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

// Lets one communicator in and no second.
MUTANT(second_context_refused, breaks("IN-01")) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kInvalidUsage;
    return good.init(context, arguments...);
  };
}

// Refuses the init of the second generation of communicators.
MUTANT(second_init_refused, breaks("IN-03").as_v(10)) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kSystemError;
    return good.init(context, arguments...);
  };
}

}  // namespace plugfest::mutants
