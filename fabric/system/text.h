// Formats counts, shortens texts, recognizes names of YAML files, and suggests corrections of misspelled words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest {

/// "1 rule", "2 rules", "0 switches".
inline std::string counted(std::size_t count, std::string_view noun) {
  const char* const ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count) + " " + std::string(noun) + ending;
}

/// Returns `text`, or at most `max_bytes` of it and its length if it is longer: "aaaa… (1048576 bytes)". Does not
/// split a character of UTF-8.
inline std::string shortened(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  for (std::size_t i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u; ++i) --end;
  return std::string(text.substr(0, end)) + "… (" + counted(text.size(), "byte") + ")";
}

/// Returns `text` with each line shortened by shortened(), and with at most `max_lines` lines.
inline std::string shortened_lines(std::string_view text, std::size_t max_bytes, std::size_t max_lines) {
  std::string result;
  for (std::size_t line = 0; !text.empty(); ++line) {
    if (line == max_lines) return result + "… (" + counted(text.size(), "byte") + " left out)";
    const std::size_t end = text.find('\n');
    result += shortened(text.substr(0, end), max_bytes) + (end == std::string_view::npos ? "" : "\n");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return result;
}

/// `text` with each `from`, which is not empty, replaced by `to`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

/// Whether a name that a user typed names a YAML file.
inline bool is_yaml_file(std::string_view name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

/// The word in `known` that differs least from `word`, if that is by at most `max_distance` letters; otherwise "".
std::string nearest(std::string_view word, const std::vector<std::string>& known, std::size_t max_distance);

/// Returns "did you mean run?" if a word in `known` is similar to `word`; otherwise "expected one of fabric, mutants,
/// run".
std::string suggestion(std::string_view word, std::vector<std::string> known);

}  // namespace plugfest
