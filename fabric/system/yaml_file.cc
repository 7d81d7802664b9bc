#include "fabric/system/yaml_file.h"

#include <fmt/ranges.h>
#include <yaml-cpp/depthguard.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace plugfest {

std::string YamlFile::content() const {
  constexpr std::size_t kMaxBytes = 4 << 20;
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored))
    throw std::runtime_error(fmt::format("{} {}: is a folder: expected a YAML file", kind_, path_));
  std::ifstream file(path_, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{} {}: no such file, or not readable", kind_, path_));
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes)
    throw std::runtime_error(fmt::format("{} {}: is larger than 4 MiB: expected a YAML file", kind_, path_));
  return text;
}

YAML::Node YamlFile::load() const {
  const std::string text = content();
  try {
    YAML::Node root = YAML::Load(text);
    std::set<int> checked;
    require_unique_fields(root, checked);
    return root;
  } catch (const YAML::DeepRecursion& error) {
    throw std::runtime_error(fmt::format("{} {}:{}: is nested too deeply", kind_, path_, error.mark.line + 1));
  } catch (const YAML::Exception& error) {
    throw std::runtime_error(fmt::format("{} {}:{}: not YAML: {}", kind_, path_, error.mark.line + 1, error.msg));
  }
}

/// `checked`: positions of checked nodes. All aliases of a node have its position, so that each node is checked once.
void YamlFile::require_unique_fields(const YAML::Node& node, std::set<int>& checked) const {
  if (node.IsScalar() || !checked.insert(node.Mark().pos).second) return;
  std::map<std::string, int> lines;
  for (const auto& child : node) {
    if (!node.IsMap()) {
      require_unique_fields(child, checked);
      continue;
    }
    require_unique_fields(child.second, checked);
    if (!child.first.IsScalar()) continue;
    const auto [first, is_new] = lines.emplace(child.first.Scalar(), child.first.Mark().line + 1);
    if (!is_new)
      fail(child.first,
           fmt::format("field {} is already in line {}: leave out one of them", first->first, first->second));
  }
}

std::string YamlFile::location(const YAML::Node& node) const {
  return fmt::format("{}:{}", path_, std::max(node.Mark().line, 0) + 1);  // an empty file has line -1
}

void YamlFile::fail(const YAML::Node& at, const std::string& text) const {
  throw std::runtime_error(fmt::format("{} {}: {}", kind_, location(at), text));
}

void YamlFile::require_map(const YAML::Node& node, std::string_view what) const {
  if (!node.IsMap()) fail(node, fmt::format("{}: expected fields, as in name: value", what));
}

void YamlFile::require_known(const YAML::Node& map, std::string_view what,
                             const std::vector<std::string>& known) const {
  for (const auto& field : map) {
    const std::string name = scalar(field.first, what);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail(field.first, fmt::format("{}: no field \"{}\": expected one of {}", what, name, fmt::join(known, ", ")));
  }
}

std::string YamlFile::scalar(const YAML::Node& node, std::string_view what) const {
  if (!node.IsScalar()) fail(node, fmt::format("{}: expected one value", what));
  return node.Scalar();
}

YAML::Node YamlFile::required(const YAML::Node& map, std::string_view what, const char* field) const {
  const YAML::Node node = map[field];
  if (!node) fail(map, fmt::format("{}: field {} is missing", what, field));
  return node;
}

YAML::Node YamlFile::list(const YAML::Node& map, std::string_view what, const char* field) const {
  const YAML::Node node = required(map, what, field);
  if (!node.IsSequence()) fail(node, fmt::format("{}: expected a list", field));
  return node;
}

}  // namespace plugfest
