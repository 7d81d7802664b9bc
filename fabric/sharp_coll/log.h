// Lines on standard error, by SHARP_COLL_LOG_LEVEL.
#pragma once

#include <unistd.h>

#include <string>

#include "fabric/system/file.h"

namespace plugfest::sharp_coll {

enum class LogLevel { kFatal = 0, kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

/// Writes lines of one context. Thread safety: any thread.
class Log {
 public:
  Log() = default;
  /// `max_level`: the level of the most detailed lines; -1: no lines. `rank`: the rank in the world of the context.
  Log(int max_level, int rank) : max_level_(max_level), rank_(rank) {}

  bool wants(LogLevel level) const { return static_cast<int>(level) <= max_level_; }
  /// Writes "sharp_coll: rank R: TEXT" with one system call if the level is wanted.
  void write(LogLevel level, const std::string& text) const {
    if (!wants(level)) return;
    const std::string who = rank_ < 0 ? "" : "rank " + std::to_string(rank_) + ": ";
    write_all(STDERR_FILENO, "sharp_coll: " + who + text + "\n");
  }

 private:
  int max_level_ = 2;
  int rank_ = -1;
};

}  // namespace plugfest::sharp_coll
