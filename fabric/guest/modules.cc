#include "fabric/guest/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;

// "sch-netem.ko.zst" is the module sch_netem.
std::string module_name(const fs::path& file) {
  std::string name = file.filename().string();
  const std::size_t end = name.find(".ko");
  if (end == std::string::npos) return {};
  name.resize(end);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::map<std::string, fs::path> files_by_name(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder / "kernel"))
    if (const std::string name = module_name(entry.path()); !name.empty()) files.emplace(name, entry.path());
  return files;
}

std::set<std::string> built_in(const fs::path& folder) {
  std::set<std::string> names;
  std::ifstream lines(folder / "modules.builtin");
  for (std::string line; std::getline(lines, line);) names.insert(module_name(line));
  return names;
}

// Reads the dependencies from the section .modinfo, which has one entry such as "depends=udp_tunnel,ib_core".
std::vector<std::string> dependencies(const fs::path& file) {
  const std::string content = module_content(file);
  constexpr std::string_view kKey("\0depends=", 9);
  const std::size_t at = content.find(kKey);
  std::vector<std::string> names;
  if (at == std::string::npos) return names;
  std::istringstream list(std::string(content.c_str() + at + kKey.size()));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

class LoadOrder {
 public:
  explicit LoadOrder(const fs::path& folder) : files_(files_by_name(folder)), built_in_(built_in(folder)) {}

  // Returns false if the module is neither in a file nor built in.
  bool add(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    const auto file = files_.find(name);
    if (file == files_.end()) return built_in_.contains(name);
    if (!seen_.insert(name).second) return true;
    for (const std::string& needed : dependencies(file->second)) add(needed);
    order_.push_back(file->second);
    return true;
  }

  std::vector<fs::path> take() { return std::move(order_); }

 private:
  std::map<std::string, fs::path> files_;
  std::set<std::string> built_in_;
  std::set<std::string> seen_;
  std::vector<fs::path> order_;
};

}  // namespace

std::string module_content(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".xz" || extension == ".zst") {
    const std::string program = extension == ".xz" ? "xz" : "zstd";
    Finished unpacked = run_program({program, "-dcq", file.string()});
    if (unpacked.exit_code != 0)
      throw std::runtime_error(fmt::format("{}: cannot decompress with {}", file.string(), program));
    return std::move(unpacked.output);
  }
  return read_file(file.string());
}

std::vector<fs::path> modules_in_order(const fs::path& folder, const ModuleNames& names) {
  if (!fs::is_directory(folder / "kernel"))
    throw std::runtime_error(fmt::format("{}: contains no modules", folder.string()));
  LoadOrder order(folder);
  for (const std::string& name : names.required)
    if (!order.add(name)) throw std::runtime_error(fmt::format("{}: no module {}", folder.string(), name));
  for (const std::string& name : names.optional) order.add(name);
  return order.take();
}

}  // namespace plugfest::guest
