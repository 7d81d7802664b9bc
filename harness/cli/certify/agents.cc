#include "harness/cli/certify/agents.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/number.h"
#include "fabric/system/process.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kMaxMeetingBytes = 256;
constexpr off_t kMaxShownOutputBytes = 400;
constexpr int kPollMs = 50;

std::optional<std::size_t> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0' || !std::all_of(text, text + std::strlen(text), ::isdigit)) return std::nullopt;
  return std::strtoul(text, nullptr, 10);
}

std::string file_part(const char* variable) {
  const char* text = std::getenv(variable);
  std::string part = text == nullptr ? "" : text;
  for (char& c : part)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  return part.substr(0, 64);
}

// Copies new content of the file. False if the reader of standard output has closed it.
bool copy_new(const Descriptor& file, off_t& copied) {
  char bytes[4096];
  for (ssize_t size; (size = pread(file.get(), bytes, sizeof(bytes), copied)) > 0; copied += size) {
    for (ssize_t done = 0; done < size;) {
      const ssize_t part = write(STDOUT_FILENO, bytes + done, static_cast<std::size_t>(size - done));
      if (part <= 0) return false;
      done += part;
    }
  }
  return true;
}

int wait_and_copy(pid_t child, const Descriptor& file) {
  off_t copied = 0;
  int status = 0;
  bool has_reader = static_cast<bool>(file);
  for (bool ended = false; !ended;) {
    ended = waitpid(child, &status, has_reader ? WNOHANG : 0) == child;
    if (has_reader) has_reader = copy_new(file, copied);
    if (!ended && has_reader) poll(nullptr, 0, kPollMs);
  }
  return exit_code_of(status);
}

}  // namespace

std::vector<std::string> read_host_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw_file_error(path, "read");
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (!(words >> host)) continue;
    if (!cluster::is_valid_name(host))
      throw std::runtime_error(fmt::format("{}:{}: \"{}\" is not a host name", path, number, host));
    if (!seen.insert(host).second)
      throw std::runtime_error(fmt::format("{}:{}: {} is listed twice", path, number, host));
    hosts.push_back(host);
  }
  if (hosts.size() < 2) throw std::runtime_error(fmt::format("{}: expected at least two hosts, one per line", path));
  return hosts;
}

std::string own_host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return std::string(name).substr(0, std::string(name).find('.'));
}

std::optional<JobTask> JobTask::of_environment() {
  struct Names {
    const char *number, *tasks, *on_host, *tasks_on_host, *hosts, *job;
    bool ends_with_host;
  };
  constexpr Names kStarters[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "",
       "PMIX_NAMESPACE", true},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "PMI_PORT", true},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", false},
  };
  for (const Names& starter : kStarters) {
    const auto number = number_of(starter.number), tasks = number_of(starter.tasks);
    if (!number || !tasks || *tasks < 2) continue;
    JobTask task;
    task.number = *number;
    task.tasks = *tasks;
    task.first_on_host = number_of(starter.on_host).value_or(0) == 0;
    const std::size_t on_host = std::max<std::size_t>(number_of(starter.tasks_on_host).value_or(1), 1);
    task.hosts = number_of(starter.hosts).value_or(divide_up(*tasks, on_host));
    task.job = file_part(starter.job) + file_part("SLURM_STEP_ID");
    task.ends_with_host = starter.ends_with_host;
    return task;
  }
  return std::nullopt;
}

MeetingFile::MeetingFile(std::string path, const cluster::Meeting& meeting) : path_(std::move(path)) {
  // Readers see either no file or the complete file.
  const std::string partial = fmt::format("{}.{}", path_, getpid());
  const Descriptor file(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) throw_file_error(partial, "write");
  if (!write_all(file.get(), meeting.text() + "\n")) {
    const int error = errno;
    unlink(partial.c_str());
    throw_file_error(partial, "write", error);
  }
  const int linked = link(partial.c_str(), path_.c_str());
  const int error = errno;
  unlink(partial.c_str());
  if (linked == 0) return;
  if (error != EEXIST) throw_file_error(path_, "create", error);
  throw std::runtime_error(
      fmt::format("{0}: left by an earlier run: rm {0}, or name another file with --meeting", path_));
}

MeetingFile::~MeetingFile() { unlink(path_.c_str()); }

cluster::Meeting MeetingFile::wait_for(const std::string& path, double seconds) {
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
  for (;;) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file) {
      struct stat facts {};
      if (fstat(file.get(), &facts) != 0 || facts.st_uid != geteuid())
        throw std::runtime_error(fmt::format("{}: belongs to another user", path));
      char text[kMaxMeetingBytes];
      const ssize_t size = read(file.get(), text, sizeof(text));
      try {
        return cluster::Meeting::parse(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))));
      } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
      }
    }
    if (now_ns() > deadline) {
      throw std::runtime_error(
          fmt::format("{}: the controller has not written it within {:g} s: name a file that all "
                      "hosts share with --meeting",
                      path, seconds));
    }
    poll(nullptr, 0, kPollMs);
  }
}

void AgentStarter::start(const std::string& host, const std::string& command, const cluster::Meeting& meeting) {
  const Pipe input = make_pipe();
  Descriptor output = make_memory_file("plugfest-agent");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read_end.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 2);
  std::string words[] = {"/bin/sh", "-c", command};
  char* const argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/bin/sh", &actions, JobAttributes().get(), argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw_errno("run /bin/sh", error);
  started_[host] = {.pid = pid, .output = std::move(output)};
  const std::string text = meeting.text() + "\n";
  // The meeting fits into the pipe. SIGPIPE occurs if the command has already ended; its output says why.
  std::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const ssize_t written = write(input.write_end.get(), text.data(), text.size());
}

bool AgentStarter::has_ended(const std::string& host) {
  const auto found = started_.find(host);
  if (found == started_.end()) return false;
  Started& process = found->second;
  int status = 0;
  if (!process.status && waitpid(process.pid, &status, WNOHANG) == process.pid) process.status = status;
  return process.status.has_value();
}

std::string AgentStarter::last_output(const std::string& host) {
  const auto found = started_.find(host);
  if (found == started_.end()) return "";
  has_ended(host);
  Started& process = found->second;
  struct stat facts {};
  if (fstat(process.output.get(), &facts) != 0) facts.st_size = 0;
  const off_t from = std::max<off_t>(0, facts.st_size - kMaxShownOutputBytes);
  char text[kMaxShownOutputBytes];
  const ssize_t size = pread(process.output.get(), text, sizeof(text), from);
  std::string output(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  while (!output.empty() && std::isspace(static_cast<unsigned char>(output.back())) != 0) output.pop_back();
  std::replace(output.begin(), output.end(), '\n', ' ');
  output = report::printable(output);
  if (process.status)
    output += fmt::format("{}exit code {}", output.empty() ? "" : "; ", exit_code_of(*process.status));
  return output;
}

AgentStarter::~AgentStarter() {
  for (auto& [host, it] : started_) {
    if (it.status) continue;
    kill(-it.pid, SIGKILL);
    await_status(it.pid);
  }
}

std::string address_of_interface(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_errno("list the network interfaces");
  std::vector<std::pair<std::string, std::string>> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    if (interface.empty() && (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof(text));
    found.emplace_back(entry->ifa_name, text);
  }
  freeifaddrs(list);
  std::vector<std::string> names;
  for (const auto& [name, address] : found) {
    if (name == interface) return address;
    names.push_back(fmt::format("{} ({})", name, address));
  }
  if (interface.empty() && found.size() == 1) return found.front().second;
  if (!interface.empty()) {
    throw std::runtime_error(fmt::format("--interface {}: it has no IPv4 address; there are {}", interface,
                                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  throw std::runtime_error(
      fmt::format("--interface is missing: name the interface over which the hosts reach the controller: {}",
                  names.empty() ? "there is none with an IPv4 address" : fmt::format("{}", fmt::join(names, ", "))));
}

std::optional<int> Detached::start(const std::string& log) {
  Descriptor output;
  if (!log.empty()) {
    output = Descriptor(open(log.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!output) throw_file_error(log, "write");
  }
  Pipe job = make_pipe();
  std::fflush(nullptr);  // otherwise both processes would write buffered output
  const pid_t child = fork();
  if (child < 0) throw_errno("fork a process");
  if (child > 0) {
    job.read_end.close();
    return wait_and_copy(child, output);
  }
  setsid();
  if (output) {
    dup2(output.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
  }
  job_ = std::move(job.read_end);
  return std::nullopt;
}

bool Detached::job_has_ended() const {
  pollfd end{job_.get(), POLLIN, 0};
  return job_ && poll(&end, 1, 0) > 0;
}

void JobWatch::run(const Detached& task, const cluster::Hub& hub, double host_seconds) {
  static constexpr std::chrono::milliseconds kPoll(100);
  const auto is_done = [done = done_.get_future()] { return done.wait_for(kPoll) == std::future_status::ready; };
  while (!task.job_has_ended())
    if (is_done()) return;
  // The hub needs some time to detect that a host is lost.
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>((host_seconds + 1) * 1e9);
  while (now_ns() < deadline) {
    for (const auto& [name, host] : hub.hosts()) {
      if (host.lost.empty()) continue;
      fmt::print("the job has ended because host {} is lost; the certification continues\n", name);
      std::fflush(stdout);
      return;
    }
    if (is_done()) return;
  }
  kill(getpid(), SIGTERM);
}

}  // namespace plugfest::cli
