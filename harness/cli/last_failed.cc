#include "harness/cli/last_failed.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "harness/report/output_file.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;

// The name of a plugin's file. Its length does not depend on that of the path.
std::string file_name(const std::string& plugin) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : plugin) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return fmt::format("{:016x}", hash);
}

// Removes the files about libraries that no longer exist.
void clean_up(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string plugin;
    std::getline(std::ifstream(entry.path()), plugin);
    if (plugin.starts_with('/') && !fs::exists(plugin, error)) fs::remove(entry.path(), error);
  }
}

}  // namespace

std::string LastFailed::folder() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  // A relative XDG_STATE_HOME is invalid.
  if (value("XDG_STATE_HOME").starts_with('/')) return value("XDG_STATE_HOME") + "/plugfest/last-failed";
  return value("HOME").empty() ? "" : value("HOME") + "/.local/state/plugfest/last-failed";
}

LastFailed::LastFailed(const std::string& plugin) : plugin_(plugin) {
  if (folder().empty()) return;
  path_ = folder() + '/' + file_name(plugin);
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != plugin) return;
  while (std::getline(file, line)) rules_.insert(line);
}

void LastFailed::update(const report::Document& document) {
  std::set<std::string> failed, passed;
  for (const report::Run& run : document.runs) {
    for (const report::RuleResult& rule : run.rules) {
      const bool bad = report::is_bad(rule.verdict) && rule.verdict != report::Verdict::kMissing;
      if (bad) failed.insert(rule.id);
      if (!bad && rule.verdict != report::Verdict::kMissing && rule.verdict != report::Verdict::kSkip)
        passed.insert(rule.id);
    }
  }
  const std::set<std::string> before = rules_;
  for (const std::string& id : passed) rules_.erase(id);
  rules_.insert(failed.begin(), failed.end());
  if (rules_ == before || path_.empty()) return;
  try {
    clean_up(folder());
    write();
  } catch (const std::exception&) {
  }
}

void LastFailed::write() const {
  if (rules_.empty()) {
    fs::remove(path_);
    return;
  }
  fs::create_directories(folder());
  std::string content = plugin_ + '\n';
  for (const std::string& id : rules_) content += id + '\n';
  report::OutputFile(path_).write(content);
}

}  // namespace plugfest::cli
