// Reads YAML files and reports errors with file, line and field.
#pragma once

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest {

/// A YAML file. All member functions except path() and location() throw std::runtime_error, for example
/// "topology lab.yaml:3: link: field ends is missing". `what`: the name of the checked item in the message ("link").
class YamlFile {
 public:
  /// `kind`: first word of error messages, such as "topology".
  YamlFile(std::string kind, const std::filesystem::path& path) : kind_(std::move(kind)), path_(path.string()) {}

  /// Parses the file. Refuses maps in which a field occurs twice, folders, and more than 4 MiB.
  YAML::Node load() const;

  const std::string& path() const { return path_; }
  /// Location of a node, such as "lab.yaml:3".
  std::string location(const YAML::Node& node) const;
  [[noreturn]] void fail(const YAML::Node& at, const std::string& text) const;

  void require_map(const YAML::Node& node, std::string_view what) const;
  /// Requires that all fields of a map are in `known`.
  void require_known(const YAML::Node& map, std::string_view what, const std::vector<std::string>& known) const;
  std::string scalar(const YAML::Node& node, std::string_view what) const;
  /// A field of a map that must exist.
  YAML::Node required(const YAML::Node& map, std::string_view what, const char* field) const;
  /// A field of a map that must exist and be a list.
  YAML::Node list(const YAML::Node& map, std::string_view what, const char* field) const;

  /// Returns parse(text of a scalar); adds location and `what` to the message of a std::runtime_error.
  template <typename Parse>
  auto parsed(const YAML::Node& node, std::string_view what, Parse parse) const {
    const std::string text = scalar(node, what);
    try {
      return parse(text);
    } catch (const std::runtime_error& error) {
      fail(node, fmt::format("{} {}", what, error.what()));
    }
  }

 private:
  std::string content() const;
  void require_unique_fields(const YAML::Node& node, std::set<int>& checked) const;

  std::string kind_;
  std::string path_;
};

}  // namespace plugfest
