// Mutants of the CollNet, tuner and env rules. calls_shim.cc and tuner_shim.cc apply them to the toys of
// conformance/interfaces; the mutants of env plugins are libraries of their own (env_libraries.cc).
#include <sched.h>
#include <unistd.h>

#include <atomic>

#include "conformance/mutants/mutant.h"
#include "harness/abi/coll_net.h"

namespace plugfest::mutants {
// Separate libraries, whose sources (sharp_libraries.cc, env_libraries.cc) say what each breaks.
LIBRARY_MUTANT_OF(sharp_product_is_sum, kCollNet,
                  breaks("EE-12").also("CO-*").because("the rules reduce with all operators").as_v(11));
LIBRARY_MUTANT_OF(sharp_exits_without_tree, kCollNet, breaks("EE-13").also("CO-03", "CO-24").as_v(11));
LIBRARY_MUTANT_OF(env_without_finalize, kEnv, breaks("EV-01").also("EV-05"));
LIBRARY_MUTANT_OF(env_has_one_buffer, kEnv, breaks("EV-02").also("EV-04", "EV-05"));
LIBRARY_MUTANT_OF(env_knows_all, kEnv, breaks("EV-03"));
LIBRARY_MUTANT_OF(env_shares_name, kEnv, breaks("EV-04"));
LIBRARY_MUTANT_OF(env_opens_once, kEnv, breaks("EV-05"));

// devices reports more adapters than NCCL's arrays have entries.
MUTANT_OF(collnet_65_devices, kCollNet, breaks("CO-01", "CO-02", "CO-20", "DP-24")) {
  calls["devices"] = [](Words& words) {
    at<int>(words[0]) = 65;
    return Result::kSuccess;
  };
}

// Supports one listener at a time.
MUTANT_OF(collnet_one_listener, kCollNet, breaks("CO-02")) {
  static int open = 0;
  calls["listen"] = [good = calls["listen"]](Words& words) {
    return open++ == 0 ? good(words) : Result::kInvalidUsage;
  };
  after_call(calls, "closeListen", [](Words&) { --open; });
}

// Writes 130 bytes into a handle of 128 bytes.
MUTANT_OF(collnet_long_handle, kCollNet, breaks("CO-02").also("CO-*").because("every communicator needs a handle")) {
  calls["listen"] = [good = calls["listen"]](Words& words) {
    for (std::size_t i = 0; i < 130; ++i) (&at<volatile char>(words[2]))[i] = 'h';
    return good(words);
  };
}

// reduceSupport decides by the number of bytes of an element, not by its type.
MUTANT_OF(collnet_supports_by_size, kCollNet, breaks("CO-07").also("CO-26")) {
  calls["reduceSupport"] = [](Words& words) {
    at<int>(words[2]) = static_cast<int>(words[0]) / 2;
    return Result::kSuccess;
  };
}

// closeListen is NULL.
MUTANT_OF(collnet_without_close_listen, kCollNet,
          breaks("CO-19").also("CO-*").because("NCCL closes the listener after each connect")) {
  calls.erase("closeListen");
}

// Fills the struct of v8 and does not write the members of v9 and later.
MUTANT_OF(collnet_short_properties, kCollNet, breaks("CO-20")) {
  calls["getProperties"] = [good = calls["getProperties"]](Words& words) {
    const std::size_t most = at<abi::newest::Properties>(words[1]).maxCollBytes;
    const Result result = good(words);
    at<abi::newest::Properties>(words[1]).maxCollBytes = most;
    return result;
  };
}

// Names its device after the plugin.
MUTANT_OF(collnet_own_device_name, kCollNet, breaks("DP-24")) {
  after_call(calls, "getProperties", [](Words& words) { at<abi::newest::Properties>(words[1]).name = "sharp0"; });
}

// getCollInfo is NULL.
MUTANT_OF(tuner_without_answers, kTuner, breaks("TU-01").also("TU-*")) { calls.erase("getCollInfo"); }

// A process has one context in its life.
MUTANT_OF(tuner_opens_once, kTuner, breaks("TU-02").also("TU-04", "TU-05", "TU-06")) {
  static int opened = 0;
  calls["init"] = [good = calls["init"]](Words& words) { return opened++ == 0 ? good(words) : Result::kInvalidUsage; };
}

// getCollInfo fails for large messages.
MUTANT_OF(tuner_refuses_large_messages, kTuner, breaks("TU-03").also("TU-02", "TU-04", "TU-05")) {
  calls["getCollInfo"] = [good = calls["getCollInfo"]](Words& words) {
    return words[2] >= std::uint64_t{1} << 32 ? Result::kInvalidArgument : good(words);
  };
}

// Prefers trees with LL, whether they can be used or not.
MUTANT_OF(tuner_enables_trees, kTuner, breaks("TU-03")) {
  after_call(calls, "getCollInfo", [](Words& words) { at<float>(words[4]) = 0; });
}

// The cost of trees with LL depends on the process.
MUTANT_OF(tuner_differs_by_process, kTuner, breaks("TU-04")) {
  after_call(calls, "getCollInfo", [](Words& words) {
    float& cost = at<float>(words[4]);
    if (cost >= 0) cost = static_cast<float>(::getpid());
  });
}

// The collective of the last call, of any thread, decides.
MUTANT_OF(tuner_shares_state, kTuner, breaks("TU-05")) {
  static std::atomic<std::uint64_t> bytes;
  calls["getCollInfo"] = [good = calls["getCollInfo"]](Words& words) {
    bytes = words[2];
    for (int i = 0; i < 20; ++i) ::sched_yield();  // lets another thread in
    words[2] = bytes;
    return good(words);
  };
}

// Chunks of an empty collective have no size.
MUTANT_OF(tuner_empty_chunks, kTuner, breaks("TU-06")) {
  after_call(calls, "getChunkSize", [](Words& words) {
    if (words[2] < words[5]) at<std::uint64_t>(words[6]) = 0;
  });
}

// Leaves all choices to NCCL.
VARIANT_OF(tuner_chooses_nothing, kTuner) {
  calls["getCollInfo"] = [](Words&) { return Result::kSuccess; };
  calls.erase("getChunkSize");
}

}  // namespace plugfest::mutants
