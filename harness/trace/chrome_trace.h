// A timeline of a run in Chrome's format: one track per rank and thread, one bar per plugin call or event of NCCL.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "harness/control/call.h"

namespace plugfest::trace {

/// Collects calls and spans of a run. Consecutive calls with equal text and result (polls) share one bar, which shows
/// their number. Thread safety: any thread.
class ChromeTrace : public control::CallObserver {
 public:
  void on_call(const std::string& rank, const control::CallRecord& call) override;

  /// Adds a bar to a track, for example a rule to its path: "rules", "a.eth0-b.eth0", "CN-06", "pass". Times:
  /// CLOCK_MONOTONIC.
  void add_span(const std::string& group, const std::string& track, const std::string& name, const std::string& result,
                std::int64_t start_ns, std::int64_t end_ns);

  /// A bar of a track. Bars of a track may contain others, but must not overlap otherwise.
  struct Bar {
    std::string name;
    std::string result;
    std::int64_t start_ns;
    std::int64_t end_ns;
    std::uint64_t count = 1;
    /// Members of a JSON object that replace `result`; `name` may then contain parentheses.
    std::string members = {};
    /// An arrow leads from the start of the bar with flow_out to the end of the one with the same flow_in; 0: none.
    std::uint64_t flow_out = 0, flow_in = 0;
  };
  /// Adds a bar without merging it with others.
  void add_bar(const std::string& group, const std::string& track, Bar bar);

  /// Returns all bars in Chrome's trace event format (JSON object form). Times count from the first event. `more`:
  /// further members of the object, each after a comma.
  /// Source: "Trace Event Format", Google, docs/document/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
  std::string json(const std::string& more = "") const;

 private:
  void add(const std::string& group, const std::string& track, Bar bar);

  mutable std::mutex mutex_;
  /// Key: group (a rank or "rules") and track (a thread or a path).
  std::map<std::pair<std::string, std::string>, std::vector<Bar>> tracks_;
};

}  // namespace plugfest::trace
