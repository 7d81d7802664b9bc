#include "fabric/input/yaml_file.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace plugfest::input {

YAML::Node YamlFile::load() const {
  try {
    return YAML::LoadFile(path_);
  } catch (const YAML::BadFile&) {
    throw std::runtime_error(fmt::format("{} {}: no such file, or not readable", kind_, path_));
  } catch (const YAML::ParserException& error) {
    throw std::runtime_error(fmt::format("{} {}:{}: not YAML: {}", kind_, path_, error.mark.line + 1, error.msg));
  }
}

std::string YamlFile::location(const YAML::Node& node) const {
  return fmt::format("{}:{}", path_, node.Mark().line + 1);
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
    fail(field.first, fmt::format("{}: no field \"{}\": there are {}", what, name, fmt::join(known, ", ")));
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

}  // namespace plugfest::input
