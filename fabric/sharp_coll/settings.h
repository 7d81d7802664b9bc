// What operators set in the environment.
#pragma once

#include <functional>
#include <string>

namespace plugfest::sharp_coll {

/// The variables of SHARP that this library follows. It ignores others.
struct Settings {
  int log_level = 2;               ///< SHARP_COLL_LOG_LEVEL: 0 fatal, 1 errors, 2 warnings, 3 information, 4 debug
  bool enable_sat = false;         ///< SHARP_COLL_ENABLE_SAT: use the streaming tree
  bool lock_on_comm_init = false;  ///< SHARP_COLL_LOCK_ON_COMM_INIT: without the streaming lock, comm_init fails
  int quota_osts = 0;              ///< SHARP_COLL_JOB_QUOTA_OSTS: outstanding operations of a group; 0: the manager's
  int stats_dump_mode = 0;         ///< SHARP_COLL_STATS_DUMP_MODE: not 0: print the counters when a context ends
  std::string manager;             ///< PLUGFEST_SHARP_MANAGER: ADDRESS:PORT of the aggregation manager

  /// Reads the variables. `lookup`: the value of a variable, null if it is not set. A value that is not a number counts
  /// as not set.
  static Settings from(const std::function<const char*(const char*)>& lookup);

  /// One line NAME=VALUE for each variable.
  std::string text() const;
};

/// The settings of this process.
Settings settings_of_environment();

}  // namespace plugfest::sharp_coll
