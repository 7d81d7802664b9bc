#include "conformance/rules/select.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>

#include "conformance/rules/groups.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {
namespace {

std::vector<std::string> split_at_commas(std::span<const std::string> patterns) {
  std::vector<std::string> parts;
  for (const std::string& pattern : patterns) {
    std::istringstream stream(pattern);
    for (std::string part; std::getline(stream, part, ',');) {
      if (part.starts_with('@')) {
        const Group& group = group_named(part);
        parts.insert(parts.end(), group.rules.begin(), group.rules.end());
      } else {
        parts.push_back(part);
      }
    }
  }
  return parts;
}

std::string as_glob(std::string pattern) {
  for (char& c : pattern) c = c == '_' ? '-' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return pattern;
}

[[noreturn]] void throw_no_match(const Catalogue& catalogue, const std::string& pattern) {
  std::string advice = input::suggestion(as_glob(pattern), catalogue.ids());
  if (!advice.starts_with("did you mean")) advice = "plugfest rules lists them";
  throw std::runtime_error("no rule matches '" + pattern + "': " + advice);
}

}  // namespace

std::vector<const Rule*> select_rules(const Catalogue& catalogue, std::span<const std::string> patterns) {
  std::vector<bool> wanted(catalogue.rules().size(), patterns.empty());
  for (const std::string& pattern : split_at_commas(patterns)) {
    const std::string glob = as_glob(pattern);
    bool matched = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (fnmatch(glob.c_str(), catalogue.rules()[i].id.c_str(), 0) != 0) continue;
      wanted[i] = true;
      matched = true;
    }
    if (!matched) throw_no_match(catalogue, pattern);
  }
  std::vector<const Rule*> selected;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) selected.push_back(&catalogue.rules()[i]);
  }
  return selected;
}

}  // namespace plugfest::conformance
