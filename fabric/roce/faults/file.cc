#include "fabric/roce/faults/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "fabric/roce/counters/page.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* what, int error) {
  throw std::runtime_error(file.string() + ": " + what + ": " + std::strerror(error));
}

}  // namespace

std::vector<FaultPlan> parse_fault_file(std::string_view text, std::string_view name) {
  std::vector<FaultPlan> plans;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    try {
      const FaultPlan plan = parse_faults(line.substr(0, line.find('#')));
      if (plan.any()) plans.push_back(plan);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(std::string(name) + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  return plans;
}

std::vector<FaultPlan> read_fault_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  if (!stream) fail(file, "cannot be read", errno);
  if (stream.peek() != std::ifstream::traits_type::eof()) text << stream.rdbuf();
  if (stream.bad()) fail(file, "cannot be read", errno);
  return parse_fault_file(text.str(), file.string());
}

void write_fault_file(const std::filesystem::path& file, std::span<const FaultPlan> plans) {
  std::string text;
  for (const FaultPlan& plan : plans)
    if (plan.any()) text += text_of(plan) + '\n';
  if (!replace_file(file, text)) fail(file, "cannot be written", errno);
}

void set_device_faults(const std::filesystem::path& device_folder, std::span<const FaultPlan> plans) {
  write_fault_file(device_folder / "faults", plans);
  announce_change(device_folder);
}

}  // namespace plugfest::roce
