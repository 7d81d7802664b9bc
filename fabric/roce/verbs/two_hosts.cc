// Runs programs in emulated hosts for tests.
#include "fabric/roce/verbs/two_hosts.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "fabric/roce/verbs/sysfs_view.h"
#include "fabric/topology/graph.h"

namespace plugfest::roce {
namespace {

netns::Options with_sysfs_view() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { write_sysfs_view_of_this_host("/sys/class/infiniband"); };
  return options;
}

// Rows of /proc/net/tcp: "sl: local_address:port remote:port state …", hexadecimal; state 0A listens.
bool listens_here(std::uint16_t port) {
  for (const char* table : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream rows(table);
    const std::string wanted = fmt::format(":{:04X}", port);
    for (std::string row; std::getline(rows, row);) {
      std::istringstream fields(row);
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      if (local.ends_with(wanted) && state == "0A") return true;
    }
  }
  return false;
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

Running::Running(netns::Fabric& fabric, std::string host, const std::vector<std::string>& argv)
    : host_(std::move(host)), output_(memfd_create("output", MFD_CLOEXEC)) {
  if (output_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  netns::Command command;
  command.argv = argv;
  command.environment = {{"LD_LIBRARY_PATH", PLUGFEST_ROCE_LIBRARY_FOLDER}};
  command.stdout_fd = output_;
  command.stderr_fd = output_;
  pid_ = fabric.spawn(host_, command);
}

Running::~Running() {
  if (!exit_code_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

netns::Finished Running::finished() const {
  netns::Finished result;
  result.exit_code = *exit_code_;
  char part[4096];
  off_t offset = 0;
  for (ssize_t count; (count = pread(output_, part, sizeof(part), offset)) > 0; offset += count)
    result.output.append(part, static_cast<std::size_t>(count));
  return result;
}

netns::Finished Running::wait() {
  int status = 0;
  while (!exit_code_) {
    if (waitpid(pid_, &status, 0) == pid_) exit_code_ = exit_code_of(status);
  }
  return finished();
}

bool Running::has_ended() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = exit_code_of(status);
  return exit_code_.has_value();
}

TwoHosts::TwoHosts() : fabric_(topology::named("triangle"), with_sysfs_view()) {}

std::string TwoHosts::address_of_a() const { return fabric_.graph().host("a").interfaces.at(0).address.text(); }

void TwoHosts::wait_until_listening(Running& program, std::uint16_t port) {
  for (bool listening = false; !listening;) {
    if (program.has_ended())
      throw std::runtime_error(fmt::format("ended before it listened on port {}:\n{}", port, program.wait().output));
    fabric_.call(program.host(), [&] { listening = listens_here(port); });
    // The kernel has no event for "somebody listens"; this only spaces the questions.
    if (!listening) std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

}  // namespace plugfest::roce
