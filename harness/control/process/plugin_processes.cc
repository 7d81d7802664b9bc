#include "harness/control/process/plugin_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "fabric/system/wait.h"

namespace plugfest::control {
namespace {

void add_children(pid_t parent, std::vector<pid_t>& processes) {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent), error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) processes.push_back(child);
  }
}

bool has_mark(pid_t process, const std::string& mark) {
  const std::string wanted = fmt::format("{}={}", kRankVariable, mark);
  std::ifstream environment(fmt::format("/proc/{}/environ", process));
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (variable == wanted) return true;
  return false;
}

}  // namespace

std::vector<pid_t> processes_of_plugin(pid_t pid, const std::string& mark) {
  // The rank is a child of this process. A process whose parent has exited is a child of the subreaper: this process or
  // its parent.
  std::vector<pid_t> found;
  for (const pid_t parent : {getpid(), getppid()}) add_children(parent, found);
  std::erase_if(found, [&](pid_t process) { return !has_mark(process, mark); });
  for (std::size_t i = 0; i < found.size() && found.size() <= kMaxProcesses + 1; ++i) add_children(found[i], found);
  std::erase(found, pid);
  return found;
}

void end_processes_of_plugin(pid_t pid, const std::string& mark) {
  const auto have_ended = [&] {
    const std::vector<pid_t> processes = processes_of_plugin(pid, mark);
    for (const pid_t process : processes) kill(process, SIGKILL);
    return processes.empty();
  };
  wait_until(have_ended, std::chrono::seconds(1));
}

}  // namespace plugfest::control
