// results.json as a whole: what was run, where, and what came out.
#pragma once

#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

struct Environment {
  std::string kernel;  ///< "Linux 6.1.0-18-amd64 x86_64"
  std::string cpu;     ///< model and number of processors
  std::string nic;     ///< "roce"
  std::string topology;
  std::string privileges;  ///< "root" or "user 1000"
};

struct Document {
  std::string version;  ///< of plugfest
  std::string commit;   ///< it was built from; empty when unknown
  Environment environment;
  std::vector<Run> runs;
  std::vector<MutantResult> mutants;
  /// The run was stopped before its end; rules that did not run are missing.
  bool interrupted = false;
};

/// Kernel, processors and privileges of this machine and process.
Environment this_environment();

}  // namespace plugfest::report
