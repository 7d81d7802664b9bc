// Starts programs in hosts, keeps what they print, and knows when they listen.
#include "fabric/netns/process/host_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
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

namespace plugfest::netns {
namespace {

// Rows of /proc/net/tcp and udp: "sl: local_address:port remote:port state …", hexadecimal. State 0A is a TCP socket
// that listens, 07 a UDP socket that is bound and not connected.
bool listens_here(std::uint16_t port, HostProcess::Protocol protocol) {
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

// The kernel has no event for "somebody listens", nor for "a file has grown"; this only spaces the questions.
constexpr std::chrono::milliseconds kBetweenQuestions{2};

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

HostProcess::HostProcess(Fabric& fabric, std::string host, const std::vector<std::string>& argv,
                         std::vector<std::pair<std::string, std::optional<std::string>>> environment)
    : fabric_(fabric), host_(std::move(host)), output_(memfd_create("output", MFD_CLOEXEC)) {
  if (output_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  Command command;
  command.argv = argv;
  command.environment = std::move(environment);
  command.stdout_fd = output_;
  command.stderr_fd = output_;
  try {
    pid_ = fabric.spawn(host_, command);
  } catch (...) {
    close(output_);
    throw;
  }
}

HostProcess::~HostProcess() {
  if (!exit_code_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

std::string HostProcess::output() const {
  std::string printed;
  char part[4096];
  off_t offset = 0;
  for (ssize_t count; (count = pread(output_, part, sizeof(part), offset)) > 0; offset += count)
    printed.append(part, static_cast<std::size_t>(count));
  return printed;
}

void HostProcess::wait_until_printed(std::string_view text) {
  for (;;) {
    const bool ended = has_ended();
    const std::string printed = output();
    if (printed.find(text) != std::string::npos) return;
    if (ended) throw std::runtime_error(fmt::format("ended before it printed \"{}\":\n{}", text, printed));
    std::this_thread::sleep_for(kBetweenQuestions);
  }
}

Finished HostProcess::wait() {
  int status = 0;
  while (!exit_code_) {
    if (waitpid(pid_, &status, 0) == pid_) exit_code_ = exit_code_of(status);
  }
  return {*exit_code_, output()};
}

bool HostProcess::has_ended() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = exit_code_of(status);
  return exit_code_.has_value();
}

void HostProcess::wait_until_listening(std::uint16_t port, Protocol protocol) {
  for (bool listening = false; !listening;) {
    if (has_ended())
      throw std::runtime_error(fmt::format("ended before it listened on port {}:\n{}", port, wait().output));
    fabric_.call(host_, [&] { listening = listens_here(port, protocol); });
    if (!listening) std::this_thread::sleep_for(kBetweenQuestions);
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
