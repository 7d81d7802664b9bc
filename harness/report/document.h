// results.json as a whole: what was run, where, and what came out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

struct Environment {
  std::string kernel;  ///< "Linux 6.1.0-18-amd64 x86_64"
  std::string cpu;     ///< model and number of processors
  std::string nic;     ///< "roce"
  std::string layout;  ///< where hosts lie when that is not each in a namespace of its own; may be empty
  std::string topology;
  std::string privileges;  ///< "root" or "user 1000"
};

/// What NCCL itself did with the plugin: --loader nccl.
struct Loader {
  std::string nccl;     ///< its version, "2.28.9"; empty when its process did not live to say
  int api = 0;          ///< version of the interface that it took; 0 for none
  std::string name;     ///< which that version has for itself
  int devices = 0;      ///< that it has once NCCL has started it
  std::string network;  ///< that its communicator got: "IB" or "Socket" where it fell back
  /// Where NCCL did not do with the plugin what was expected; empty if it did.
  std::string deviation;
  /// What NCCL wrote to its log, level INFO.
  std::string log;
};

/// "NCCL 2.28.9 takes Mesh v11, 2 devices", or what deviates.
std::string describe(const Loader& loader);

struct Document {
  std::string version;  ///< of plugfest
  std::string commit;   ///< it was built from; empty when unknown
  Environment environment;
  std::optional<Loader> loader;  ///< where NCCL was asked
  std::vector<Run> runs;
  std::vector<MutantResult> mutants;
  /// The run was stopped before its end; rules that did not run are missing.
  bool interrupted = false;
};

/// Kernel, processors and privileges of this machine and process.
Environment this_environment();

}  // namespace plugfest::report
