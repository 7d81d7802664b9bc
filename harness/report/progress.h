// Counts the rules of a run that have ended, and estimates when the rest will.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fabric/system/clock.h"

namespace plugfest::report {

/// The state of a run of `total` rules. Thread safety: none.
class Progress {
 public:
  explicit Progress(std::size_t total = 0) : total_(total) {}

  void start(const std::string& id) { running_.push_back(id); }
  void end(const std::string& id, bool is_bad);

  std::size_t total() const { return total_; }
  bool is_complete() const { return ended_.size() >= total_; }
  /// "[===   ] 34/204, 12 failed, about 40 s left: XF-05 CN-06", of any length. The run is not complete.
  std::string line() const;
  /// "34 of 204 rules, 12 failed".
  std::string counts() const;
  /// ", about 40 s left"; "" if it cannot be estimated yet.
  std::string time_left() const;

 private:
  std::string failed() const;

  std::size_t total_;
  Stopwatch watch_;
  /// When rules have ended, in seconds of `watch_`.
  std::vector<double> ended_;
  std::vector<std::string> running_;
  std::size_t bad_ = 0;
};

}  // namespace plugfest::report
