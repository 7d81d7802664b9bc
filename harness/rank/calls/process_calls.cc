// Facts about this process.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>

#include "harness/rank/calls/dispatch.h"

namespace plugfest::rank {

namespace {

std::int32_t entries(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder), closedir);
  if (!open) throw std::system_error(errno, std::generic_category(), folder);
  std::int32_t count = 0;
  while (const dirent* entry = readdir(open.get())) count += entry->d_name[0] != '.' ? 1 : 0;
  return count;
}

/// A number in kB from /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

std::vector<std::string> executable_files() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, inode, path;
    words >> range >> access >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    if (access.find('x') == std::string::npos || !path.starts_with('/')) continue;
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  }
  return files;
}

}  // namespace

ProcessAnswer execute(const ProcessFacts&) {
  ProcessAnswer facts;
  facts.threads = entries("/proc/self/task");
  facts.file_descriptors = entries("/proc/self/fd") - 1;  // without the descriptor of this folder
  facts.resident_bytes = status_bytes("VmRSS");
  facts.locked_bytes = status_bytes("VmLck");
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  facts.cpu_ns = std::int64_t{cpu.tv_sec} * 1'000'000'000 + cpu.tv_nsec;
  facts.libraries = executable_files();
  return facts;
}

}  // namespace plugfest::rank
