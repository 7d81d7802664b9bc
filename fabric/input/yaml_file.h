// A YAML file as people write it: fields are checked, and every error names the file, the line and the field.
#pragma once

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::input {

/// Errors of all functions but `place`: std::runtime_error, "topology lab.yaml:3: link: field ends is missing". `what`
/// is how such a line calls the thing at hand.
class YamlFile {
 public:
  /// `kind`: what the file describes, "topology".
  YamlFile(std::string kind, const std::filesystem::path& path) : kind_(std::move(kind)), path_(path.string()) {}

  /// The whole document.
  YAML::Node load() const;

  const std::string& path() const { return path_; }
  /// "lab.yaml:3"
  std::string place(const YAML::Node& node) const;
  [[noreturn]] void fail(const YAML::Node& at, const std::string& text) const;

  void require_map(const YAML::Node& node, std::string_view what) const;
  void require_known(const YAML::Node& map, std::string_view what, const std::vector<std::string>& known) const;
  std::string scalar(const YAML::Node& node, std::string_view what) const;
  YAML::Node required(const YAML::Node& map, std::string_view what, const char* field) const;
  YAML::Node list(const YAML::Node& map, std::string_view what, const char* field) const;

  /// What `parse` makes of a field; its complaint gets the place and the field's name.
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
  std::string kind_;
  std::string path_;
};

}  // namespace plugfest::input
