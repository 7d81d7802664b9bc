// Mutants of the profiler rules.
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// Has no recordEventState.
MUTANT_OF(profiler_without_states, kProfiler, breaks("PI-01")) { calls.erase("recordEventState"); }

// Writes an activation mask of 64 bits, which is how wide types of events are.
MUTANT_OF(profiler_wide_mask, kProfiler, breaks("PI-02").also("PI-01", "PI-03")) {
  calls["init"] = [good = calls["init"]](Words& words) {
    const Result result = good(words);
    at<std::uint64_t>(words[2]) = 1;
    return result;
  };
}

// Asks for all events, also those of later versions.
MUTANT_OF(profiler_asks_for_all_events, kProfiler, breaks("PI-02")) {
  calls["init"] = [good = calls["init"]](Words& words) {
    const Result result = good(words);
    at<int>(words[2]) = -1;
    return result;
  };
}

// Finalizes contexts in the order in which they were opened only.
MUTANT_OF(profiler_finalizes_in_order, kProfiler, breaks("PI-03")) {
  static std::vector<std::uint64_t> open;
  calls["init"] = [good = calls["init"]](Words& words) {
    const Result result = good(words);
    open.push_back(at<std::uint64_t>(words[0]));
    return result;
  };
  calls["finalize"] = [good = calls["finalize"]](Words& words) {
    if (open.empty() || open.front() != words[0]) return Result::kInvalidUsage;
    open.erase(open.begin());
    return good(words);
  };
}

}  // namespace plugfest::mutants
