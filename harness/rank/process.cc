// Facts about this process, its end, and its children.
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fabric/system/file.h"
#include "fabric/system/memory_map.h"
#include "fabric/system/process.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"

namespace plugfest::rank {

namespace {

std::int32_t entries(const char* folder) {
  using std::filesystem::directory_iterator;
  return static_cast<std::int32_t>(std::distance(directory_iterator(folder), directory_iterator()));
}

// Counts the threads of this process, without those of the user-space NIC: a hardware NIC has none.
std::int32_t count_threads() {
  std::int32_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread_folder(std::stoi(thread.path().filename().string())) + "/comm");
    std::string name;
    // A thread that has ended has no name.
    if (std::getline(file, name) && !name.starts_with("roce-")) ++count;
  }
  return count;
}

// A number in kB from /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  return 0;
}

std::vector<std::string> executable_files() {
  std::vector<std::string> files;
  visit_mappings("/proc/self/maps", [&](const MemoryMapping& mapping) {
    if (mapping.executable && !mapping.file.empty() &&
        std::find(files.begin(), files.end(), mapping.file) == files.end())
      files.emplace_back(mapping.file);
    return true;
  });
  return files;
}

auto& closed_at_exit = *new std::vector<Close>;

// Returns whether init and devices succeed in this process.
bool plugin_starts() { return calls::init().code == 0 && calls::devices().code == 0; }

}  // namespace

void prepare_exit() {
  std::atexit([] {
    for (const Close& close : closed_at_exit) calls::close(close.kind, close.comm);
  });
}

Nothing execute(const Exit& request) {
  closed_at_exit = request.close_after_plugin;
  std::exit(0);
}

ForkAnswer execute(const Fork& request) {
  const pid_t child = request.action == ForkAction::kExec ? vfork() : fork();
  if (child < 0) throw_errno("fork a process");
  if (child == 0) {
    if (request.action == ForkAction::kExec) {
      execl("/bin/true", "true", nullptr);
      _exit(127);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(request.action == ForkAction::kInit && !plugin_starts() ? 1 : 0);
  }
  return {.status = await_status(child)};
}

ProcessAnswer execute(const ProcessFacts&) {
  ProcessAnswer facts;
  facts.threads = count_threads();
  facts.file_descriptors = entries("/proc/self/fd") - 1;  // the iteration itself uses a descriptor
  malloc_trim(0);  // a leak in memory that the process has freed before would not change the resident size
  facts.resident_bytes = status_bytes("VmRSS");
  facts.locked_bytes = status_bytes("VmLck");
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  facts.cpu_ns = std::int64_t{cpu.tv_sec} * 1'000'000'000 + cpu.tv_nsec;
  facts.libraries = executable_files();
  for (char** variable = environ; *variable != nullptr; ++variable) facts.environment.emplace_back(*variable);
  return facts;
}

Text execute(const LinkTarget& request) {
  std::error_code error;
  return {std::filesystem::read_symlink(request.path, error)};
}

}  // namespace plugfest::rank
