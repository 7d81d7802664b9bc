// A run as a timeline: one track per rank and thread, one bar per plugin call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/record.h"

namespace plugfest::trace {

/// Collects calls and spans of a run. Equal calls with equal results in a row (polls) become one bar that says how many
/// there were. Thread safety: any thread.
class ChromeTrace : public control::CallObserver {
 public:
  void on_call(const std::string& rank, const control::CallRecord& call) override;

  /// A bar on a track of its own group, such as a rule on the path that it ran on: {"rules", "a.eth0-b.eth0", "CN-06",
  /// "pass"}. Times: CLOCK_MONOTONIC.
  void add_span(const std::string& group, const std::string& track, const std::string& name, const std::string& result,
                std::int64_t start_ns, std::int64_t end_ns);

  /// All of it, in Chrome's trace event format (JSON object form). Times count from the first event.
  /// Source: "Trace Event Format", Google, docs/document/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
  std::string json() const;

 private:
  struct Bar {
    std::string name;
    std::string result;
    std::int64_t start_ns;
    std::int64_t end_ns;
    std::uint64_t count;
  };

  void add(const std::string& group, const std::string& track, Bar bar);

  mutable std::mutex mutex_;
  /// By group (a rank, "rules") and track (a thread, a path).
  std::map<std::pair<std::string, std::string>, std::vector<Bar>> tracks_;
};

}  // namespace plugfest::trace
