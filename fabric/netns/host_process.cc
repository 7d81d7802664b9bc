#include "fabric/netns/host_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "fabric/system/process.h"

namespace plugfest::netns {
namespace {

// The kernel has no event for a new listening socket.
constexpr std::chrono::milliseconds kPollInterval{2};

}  // namespace

// Columns of /proc/net/tcp and udp: "sl: local_address:port remote:port state …", in hexadecimal. State 0A: a listening
// TCP socket. State 07: a bound UDP socket that is not connected.
bool is_listening(std::uint16_t port, HostProcess::Protocol protocol) {
  const bool tcp = protocol == HostProcess::Protocol::kTcp;
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const char* version : {"", "6"}) {
    std::ifstream rows(fmt::format("/proc/thread-self/net/{}{}", tcp ? "tcp" : "udp", version));
    for (std::string row; std::getline(rows, row);) {
      std::istringstream fields(row);
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      if (local.ends_with(wanted) && state == (tcp ? "0A" : "07")) return true;
    }
  }
  return false;
}

HostProcess::HostProcess(Fabric& fabric, std::string host, const std::vector<std::string>& argv,
                         std::vector<std::pair<std::string, std::optional<std::string>>> environment)
    : fabric_(fabric), host_(std::move(host)), output_(make_memory_file("output")) {
  Command command;
  command.argv = argv;
  command.environment = std::move(environment);
  command.stdout_fd = output_.get();
  command.stderr_fd = output_.get();
  pid_ = fabric.spawn(host_, command);
}

HostProcess::~HostProcess() {
  if (exit_code_) return;
  kill(pid_, SIGKILL);
  await_exit(pid_);
}

std::string HostProcess::output() const { return content_of(output_.get()); }

Finished HostProcess::wait() {
  if (!exit_code_) exit_code_ = await_exit(pid_);
  return {*exit_code_, output()};
}

bool HostProcess::has_exited() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = exit_code_of(status);
  return exit_code_.has_value();
}

void HostProcess::wait_until_listening(std::uint16_t port, Protocol protocol) {
  constexpr std::chrono::seconds kLimit{120};
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  for (bool listening = false; !listening;) {
    if (has_exited())
      throw std::runtime_error(fmt::format("a process exited before it listened on port {}:\n{}", port, wait().output));
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error(
          fmt::format("a process does not listen on port {} after {} s:\n{}", port, kLimit.count(), output()));
    fabric_.call(host_, [&] { listening = is_listening(port, protocol); });
    if (!listening) std::this_thread::sleep_for(kPollInterval);
  }
}

std::optional<std::string> find_program(const std::string& name) {
  if (name.starts_with('/')) return access(name.c_str(), X_OK) == 0 ? std::optional(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

}  // namespace plugfest::netns
