// --last-failed: remembers which rules of a plugin failed in its last runs.
#pragma once

#include <set>
#include <string>

#include "harness/report/results.h"

namespace plugfest::cli {

/// A file for each plugin in $XDG_STATE_HOME/plugfest/last-failed, or in ~/.local/state/plugfest/last-failed: the
/// plugin's path, then the id of each rule that failed and has not passed since, one per line.
class LastFailed {
 public:
  /// `plugin`: Plugin::load. Reads the file, if there is one.
  explicit LastFailed(const std::string& plugin);

  /// The ids of the rules; empty if none failed.
  const std::set<std::string>& rules() const { return rules_; }

  /// Adds the rules of `document` that failed, removes those that passed in each of its runs, and writes the file if
  /// its content changed. Also removes files about plugins that no longer exist. Does nothing if the folder cannot be
  /// written, since that must not fail a run.
  void update(const report::Document& document);

  /// The folder of the files; empty if neither XDG_STATE_HOME nor HOME is set.
  static std::string folder();

 private:
  void write() const;

  std::string plugin_;
  std::string path_;  ///< empty without a folder
  std::set<std::string> rules_;
};

}  // namespace plugfest::cli
