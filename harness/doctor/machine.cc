#include "harness/doctor/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "fabric/guest/kernel.h"
#include "fabric/system/file.h"
#include "harness/report/text.h"

namespace plugfest::doctor {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// The text after `key` on the line that starts with `key`, without leading white space.
std::string field(const std::string& text, std::string_view key) {
  for (const std::string& line : report::lines_of(text)) {
    if (!line.starts_with(key)) continue;
    const std::size_t start = line.find_first_not_of(" \t", key.size());
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::optional<std::uint64_t> limit_value(const std::string& word) {
  if (word == "unlimited" || word.empty()) return std::nullopt;
  return std::strtoull(word.c_str(), nullptr, 10);
}

}  // namespace

Machine::Machine(fs::path root, std::vector<std::string> search, std::string architecture, std::string cache,
                 std::string plugfest, Trials trials)
    : root_(std::move(root)),
      search_(std::move(search)),
      architecture_(std::move(architecture)),
      cache_(std::move(cache)),
      plugfest_(std::move(plugfest)),
      trials_(std::move(trials)) {}

Machine Machine::this_machine(std::string plugfest) {
  utsname names{};
  uname(&names);
  const char* path = std::getenv("PATH");
  std::vector<std::string> search = split(path == nullptr ? "" : path, ':');
  search.insert(search.end(), {"/usr/sbin", "/sbin"});  // not in the PATH of Debian's ordinary users
  return Machine("/", std::move(search), names.machine, guest::cache_folder(), std::move(plugfest), Trials::real());
}

std::optional<std::string> Machine::read(std::string_view path) const {
  std::optional<std::string> content = try_read_file(at(path));
  if (content) content->erase(content->find_last_not_of(" \t\r\n") + 1);
  return content;
}

std::optional<long> Machine::number(std::string_view path) const {
  const auto content = read(path);
  if (!content) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(content->c_str(), &end, 10);
  return end == content->c_str() ? std::nullopt : std::optional(value);
}

bool Machine::exists(std::string_view path) const {
  std::error_code ignored;
  return fs::exists(at(path), ignored);
}

bool Machine::may_open(std::string_view path) const { return access(at(path).c_str(), R_OK | W_OK) == 0; }

std::vector<std::string> Machine::list(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(at(folder), error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string Machine::link_target(std::string_view path) const {
  std::error_code error;
  const fs::path target = fs::read_symlink(at(path), error);
  return error ? "" : target.filename().string();
}

std::string Machine::program(std::string_view name) const {
  for (const std::string& folder : search_) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (folder.front() == '/' && access(at(path).c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string Machine::kernel() const { return read("/proc/sys/kernel/osrelease").value_or("unknown"); }

std::pair<int, int> Machine::kernel_version() const {
  std::pair<int, int> version;
  std::sscanf(kernel().c_str(), "%6d.%6d", &version.first, &version.second);
  return version;
}

Module Machine::module(const std::string& name) const {
  if (exists("/sys/module/" + name)) return Module::kLoaded;
  const std::string folder = "/lib/modules/" + kernel();
  if (!exists(folder)) return Module::kUnknown;
  const std::string file = "/" + name + ".ko";
  if (read(folder + "/modules.builtin").value_or("").find(file) != std::string::npos) return Module::kBuiltIn;
  return read(folder + "/modules.dep").value_or("").find(file) != std::string::npos ? Module::kOnDisk : Module::kAbsent;
}

std::uint32_t Machine::user() const {
  // real, effective, saved, file system
  const auto ids = split(field(read("/proc/self/status").value_or(""), "Uid:"), '\t');
  return ids.size() < 2 ? geteuid() : static_cast<std::uint32_t>(std::strtoul(ids[1].c_str(), nullptr, 10));
}

bool Machine::has_net_admin() const {
  constexpr std::uint64_t kNetAdmin = std::uint64_t{1} << 12;
  const std::uint64_t effective =
      std::strtoull(field(read("/proc/self/status").value_or(""), "CapEff:").c_str(), nullptr, 16);
  unsigned long inside = 0, outside = 0, count = 0;
  const std::string map = read("/proc/self/uid_map").value_or("0 0 4294967295");
  const bool whole = std::sscanf(map.c_str(), "%lu %lu %lu", &inside, &outside, &count) == 3 && inside == outside &&
                     count >= 0xffffffff;
  return whole && (effective & kNetAdmin) != 0;
}

Limit Machine::limit(std::string_view name) const {
  std::istringstream words(field(read("/proc/self/limits").value_or(""), name));
  std::string soft, hard;
  words >> soft >> hard;
  return {limit_value(soft), limit_value(hard)};
}

}  // namespace plugfest::doctor
