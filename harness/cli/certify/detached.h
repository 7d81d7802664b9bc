// A task of mpirun that goes on when mpirun ends its job.
//
// Open MPI ends a job when it loses its daemon on one of the hosts, whatever its options say about recovery. It signals
// the process group of each task, so a process in a session of its own is not among them.
#pragma once

#include <optional>
#include <string>

#include "fabric/system/descriptor.h"

namespace plugfest::cli {

class Detached {
 public:
  /// Forks. Here it returns nullopt, in a process with a session of its own. The caller's process waits for it, returns
  /// its exit code, and copies what it writes to `log` to standard output. `log` "": both share the output.
  /// Errors: std::runtime_error, also if `log` cannot be written.
  std::optional<int> start(const std::string& log);
  /// Whether the process that waits has been killed, and with it the job. False if nothing was started.
  bool job_has_ended() const;

 private:
  /// Its other end closes with the process that waits.
  Descriptor job_;
};

}  // namespace plugfest::cli
