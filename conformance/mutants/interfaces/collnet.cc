// Mutants of the CollNet rules.
#include "conformance/mutants/mutant.h"
#include "harness/abi/coll_net.h"

namespace plugfest::mutants {

// More adapters than NCCL's arrays have entries.
MUTANT_OF(collnet_65_devices, kCollNet, breaks("CO-01", "CO-02", "CO-20", "DP-24")) {
  calls["devices"] = [](Words& words) {
    at<int>(words[0]) = 65;
    return Result::kSuccess;
  };
}

// Has one listener at a time.
MUTANT_OF(collnet_one_listener, kCollNet, breaks("CO-02")) {
  static int open = 0;
  calls["listen"] = [good = calls["listen"]](Words& words) {
    return open++ == 0 ? good(words) : Result::kInvalidUsage;
  };
  calls["closeListen"] = [good = calls["closeListen"]](Words& words) {
    --open;
    return good(words);
  };
}

// Writes 130 bytes into a handle of 128.
MUTANT_OF(collnet_long_handle, kCollNet, breaks("CO-02")) {
  calls["listen"] = [good = calls["listen"]](Words& words) {
    for (std::size_t i = 0; i < 130; ++i) (&at<volatile char>(words[2]))[i] = 'h';
    return good(words);
  };
}

// Says that it supports a type by the number of bytes of an element.
MUTANT_OF(collnet_supports_by_size, kCollNet, breaks("CO-07")) {
  calls["reduceSupport"] = [](Words& words) {
    at<int>(words[2]) = static_cast<int>(words[0]) / 2;
    return Result::kSuccess;
  };
}

// Has no closeListen.
MUTANT_OF(collnet_without_close_listen, kCollNet, breaks("CO-19").also("CO-02")) { calls.erase("closeListen"); }

// Fills the struct of v8 and leaves the members of v9 and later.
MUTANT_OF(collnet_short_properties, kCollNet, breaks("CO-20")) {
  calls["getProperties"] = [good = calls["getProperties"]](Words& words) {
    const std::size_t most = at<abi::v12::Properties>(words[1]).maxCollBytes;
    const Result result = good(words);
    at<abi::v12::Properties>(words[1]).maxCollBytes = most;
    return result;
  };
}

// Names its device after itself.
MUTANT_OF(collnet_own_device_name, kCollNet, breaks("DP-24")) {
  calls["getProperties"] = [good = calls["getProperties"]](Words& words) {
    const Result result = good(words);
    at<abi::v12::Properties>(words[1]).name = "sharp0";
    return result;
  };
}

}  // namespace plugfest::mutants
