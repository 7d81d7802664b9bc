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

  /// Adds the rules of `document` that failed, removes those that passed in each run of it, and writes the file if that
  /// changed something. Also removes files about plugins that no longer exist. Without a folder that can be written it
  /// does nothing: a run must not fail for that.
  void update(const report::Document& document);

  /// The folder of the files; empty if there is neither XDG_STATE_HOME nor HOME.
  static std::string folder();

 private:
  void write() const;

  std::string plugin_;
  std::string path_;  ///< empty without a folder
  std::set<std::string> rules_;
};

}  // namespace plugfest::cli
