// Starts the agents of a certification: with a command for each host of a list, or as the tasks of mpirun or srun.
#pragma once
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/system/file.h"
#include "harness/cluster/agents/agent.h"
#include "harness/cluster/agents/hub.h"

namespace plugfest::cli {

/// Reads a host file in mpirun's format: the first word of each line is a host, the rest is ignored; '#' starts a
/// comment. Errors: std::runtime_error with file and line for an invalid host name, a host that is listed twice, or
/// fewer than two hosts.
std::vector<std::string> read_host_file(const std::string& path);

/// The name of this host without its domain.
std::string own_host_name();

/// This process as one task of a job that mpirun or srun has started.
struct JobTask {
  std::size_t number = 0;
  std::size_t tasks = 1;
  /// Whether it is the first task on its host. Only this task runs an agent.
  bool first_on_host = true;
  /// The number of hosts of the job, if the starter reports it; 0: unknown.
  std::size_t hosts = 0;
  /// Identifies the job; usable as part of a file name.
  std::string job;
  /// Whether the starter ends all tasks when it loses a host.
  bool ends_with_host = false;

  /// Reads the variables that Open MPI, Slurm and MPICH's hydra set. nullopt for a process that none of them started,
  /// and for a job of one task.
  static std::optional<JobTask> of_environment();
};

/// Publishes the controller's address and token in a file that the tasks of a job share and only their user can read.
/// Removes it on destruction.
class MeetingFile {
 public:
  /// Errors: std::runtime_error, including if the file exists.
  MeetingFile(std::string path, const cluster::Meeting& meeting);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  /// Waits for the file and reads it. Errors: std::runtime_error after `seconds`, or if it is invalid, or if another
  /// user owns it.
  static cluster::Meeting wait_for(const std::string& path, double seconds);

 private:
  const std::string path_;
};

/// The processes that start agents on other hosts, or run them on this host. Kills processes that still run on
/// destruction.
class AgentStarter {
 public:
  AgentStarter() = default;
  ~AgentStarter();
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;

  /// Runs `command` in a shell, and writes the meeting to its standard input. Errors: std::runtime_error.
  void start(const std::string& host, const std::string& command, const cluster::Meeting& meeting);
  /// Whether the command for this host has ended.
  bool has_ended(const std::string& host);
  /// The end of the output of the command for this host, and how the command ended: "ssh: connect to host h3 port 22:
  /// No route to host; exit code 255". "" if it prints nothing and still runs.
  std::string last_output(const std::string& host);

 private:
  struct Started {
    pid_t pid = -1;
    Descriptor output;
    std::optional<int> status = std::nullopt;
  };
  std::map<std::string, Started> started_;
};

/// The IPv4 address of a network interface; `interface` "": the only interface other than lo that is up. Errors:
/// std::runtime_error that lists the interfaces.
std::string address_of_interface(const std::string& interface);

/// A task of mpirun that continues when mpirun ends its job. Open MPI ends a job when it loses its daemon on one of the
/// hosts, regardless of its recovery options. It signals the process group of each task, but not a process in a session
/// of its own.
class Detached {
 public:
  /// Forks. Returns nullopt in the child, which has its own session. The parent waits for the child, returns its exit
  /// code, and copies the content of `log` to standard output. `log` "": both share the output.
  /// Errors: std::runtime_error, including if `log` cannot be written.
  std::optional<int> start(const std::string& log);
  /// Whether the waiting parent has been killed, and with it the job. False if start() has not forked.
  bool job_has_ended() const;

 private:
  /// The other end closes when the waiting parent ends.
  Descriptor job_;
};

/// Watches for the end of the job by mpirun. If a host is lost, that is the reason, and the certification continues.
/// Otherwise the user has ended the job.
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
