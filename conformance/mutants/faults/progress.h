// Plugins of GIN and RMA whose test makes no progress.
#pragma once

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// Makes test write 0 unless the thread has called the progress function after the last test that wrote 0.
inline void complete_after_progress(Calls& calls, const char* progress) {
  static thread_local bool progressed = false;
  after_call(calls, progress, [](Words&) { progressed = true; });
  calls["test"] = [good = calls["test"]](Words& words) {
    at<int>(words[2]) = 0;
    if (!progressed) return Result::kSuccess;
    const Result result = good(words);
    progressed = at<int>(words[2]) != 0;
    return result;
  };
}

}  // namespace plugfest::mutants
