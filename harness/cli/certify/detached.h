// A task of mpirun that goes on when mpirun ends its job.
//
// Open MPI ends a job when it loses its daemon on one of the hosts, whatever its options say about recovery. It signals
// the process group of each task, so a process in a session of its own is not among them.
#pragma once

#include <future>
#include <optional>
#include <string>
#include <thread>

#include "fabric/system/file.h"
#include "harness/cluster/hub/hub.h"

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

/// When mpirun has ended the job, the certification goes on if a host is lost, which is then the reason. Otherwise the
/// user has ended it.
class JobWatch {
 public:
  JobWatch(const Detached& task, const cluster::Hub& hub, double host_seconds)
      : thread_([this, &task, &hub, host_seconds] { run(task, hub, host_seconds); }) {}
  ~JobWatch() {
    done_.set_value();
    thread_.join();
  }
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

 private:
  void run(const Detached& task, const cluster::Hub& hub, double host_seconds);

  std::promise<void> done_;
  std::thread thread_;
};

}  // namespace plugfest::cli
