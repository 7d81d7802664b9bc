#include "conformance/net/script/process_state.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace plugfest::conformance {
namespace {

/// The value of "key:" in a file of /proc, in this base; 0 without such a line.
std::uint64_t number_in(const std::string& file, const std::string& key, int base) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1), nullptr, base);
  }
  return 0;
}

/// The lowest number that a new descriptor of the process would get.
std::uint64_t lowest_free_descriptor(pid_t process) {
  std::uint64_t number = 0;
  while (std::filesystem::is_symlink(fmt::format("/proc/{}/fd/{}", process, number))) ++number;
  return number;
}

std::uint64_t set_descriptor_limit(pid_t process, std::uint64_t limit) {
  rlimit now{};
  if (prlimit(process, RLIMIT_NOFILE, nullptr, &now) == 0) {
    const rlimit wanted{std::min<rlim_t>(limit, now.rlim_max), now.rlim_max};
    if (prlimit(process, RLIMIT_NOFILE, &wanted, nullptr) == 0) return now.rlim_cur;
  }
  throw std::runtime_error(fmt::format("the limit of descriptors of process {}: {}", process, std::strerror(errno)));
}

}  // namespace

control::ProcessFacts settled(control::Rank rank, const control::StallLimit& limit,
                              const std::function<bool(const control::ProcessFacts&)>& holds) {
  control::StallLimit left = limit.times(0.1);
  for (;;) {
    control::ProcessFacts facts = rank.process();
    if (holds(facts) || left.expired()) return facts;
  }
}

std::vector<std::string> inherited_descriptors(pid_t process) {
  constexpr std::uint64_t kCloseOnExec = 02000000;
  std::vector<std::string> inherited;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), ignored)) {
    const std::string number = entry.path().filename().string();
    const std::uint64_t flags = number_in(fmt::format("/proc/{}/fdinfo/{}", process, number), "flags", 8);
    if (std::stoi(number) <= 2 || (flags & kCloseOnExec) != 0) continue;
    inherited.push_back(fmt::format("{} ({})", number, std::filesystem::read_symlink(entry.path(), ignored).string()));
  }
  return inherited;
}

std::uint64_t caught_signals(pid_t process) { return number_in(fmt::format("/proc/{}/status", process), "SigCgt", 16); }

NoMoreDescriptors::NoMoreDescriptors(control::Rank rank)
    : process_(rank.pid()), before_(set_descriptor_limit(process_, lowest_free_descriptor(process_))) {}

NoMoreDescriptors::~NoMoreDescriptors() {
  try {
    set_descriptor_limit(process_, before_);
  } catch (const std::exception&) {
    // The process has ended.
  }
}

}  // namespace plugfest::conformance
