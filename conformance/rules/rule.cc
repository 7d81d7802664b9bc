#include "conformance/rules/rule.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {
namespace {

// Returns an id or pattern in the catalog's form: upper case, with '-'.
std::string canonical(std::string_view typed) {
  std::string id(typed);
  for (char& c : id) c = c == '_' ? '-' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return id;
}

bool well_formed(std::string_view id) {
  return id.size() == 5 && id[2] == '-' && std::isdigit(static_cast<unsigned char>(id[3])) != 0 &&
         std::isdigit(static_cast<unsigned char>(id[4])) != 0;
}

auto contract_order(const Rule& rule) {
  return std::make_tuple(group_position(rule.group()), std::string_view(rule.id));
}

Catalog& program_catalog() {
  static Catalog catalog;
  return catalog;
}

// From loading to a dead peer. Each is fast even on an emulated processor.
constexpr std::array<std::string_view, 21> kSmoke = {"LD-01", "LD-03", "IN-01", "IN-05", "DP-01", "DP-04", "CN-02",
                                                     "CN-06", "CN-07", "MR-01", "MR-05", "XF-01", "XF-05", "XF-09",
                                                     "XF-26", "TS-01", "FL-07", "CL-01", "ER-01", "ER-04", "TH-02"};

constexpr std::array kGroups = {Group{"@smoke", "a few fast rules from every part of the contract", kSmoke}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kTitles = {{
    {"LD", "the library file"},
    {"IN", "init and finalize"},
    {"DP", "devices and their properties"},
    {"CN", "listen, connect, accept"},
    {"MR", "registration of memory"},
    {"XF", "isend and irecv"},
    {"TS", "test"},
    {"FL", "iflush and irecvConsumed"},
    {"CL", "close"},
    {"ER", "errors and lost peers"},
    {"TH", "threads"},
    {"SK", "soak: many messages, bytes and descriptors"},
    {"PF", "events for NCCL's profiler"},
    {"PR", "traffic of NCCL's proxies"},
    {"CO", "collnet: reductions in the network"},
    {"GI", "one-sided: GIN and RMA"},
    {"PI", "profiler plugins"},
    {"TU", "tuner plugins"},
    {"EV", "env plugins"},
    {"EE", "NCCL itself, end to end"},
}};

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

[[noreturn]] void throw_no_match(const Catalog& catalog, const std::string& pattern) {
  std::string advice = suggestion(canonical(pattern), catalog.ids());
  if (!advice.starts_with("did you mean")) advice = program_as_typed() + " rules lists them";
  throw std::runtime_error("no rule matches '" + pattern + "': " + advice);
}

}  // namespace

char level_letter(Level level) {
  switch (level) {
    case Level::kMust:
      return 'M';
    case Level::kShould:
      return 'S';
    case Level::kInfo:
      return 'I';
  }
  return '?';
}

std::string ApiRange::describe() const {
  constexpr ApiRange kAll = all();
  if (first <= kAll.first && last == kAll.last) return "all versions";
  if (last == kAll.last) return "v" + std::to_string(first) + " and later";
  if (first == kAll.first) return "up to v" + std::to_string(last);
  return "v" + std::to_string(first) + " to v" + std::to_string(last);
}

std::string RealFault::url() const {
  std::string url = "https://github.com/" + std::string(reference);
  const std::size_t number = url.find('#');
  return number == std::string::npos ? url : url.replace(number, 1, "/issues/");
}

void Catalog::add(Rule rule) {
  if (!well_formed(rule.id)) throw std::logic_error("rule id '" + rule.id + "': expected a form such as CN-06");
  if (find(rule.id) != nullptr) throw std::logic_error("rule " + rule.id + " is declared twice");
  const auto position = std::upper_bound(rules_.begin(), rules_.end(), rule, [](const Rule& left, const Rule& right) {
    return contract_order(left) < contract_order(right);
  });
  rules_.insert(position, std::move(rule));
}

std::vector<std::string> Catalog::ids() const {
  std::vector<std::string> ids;
  for (const Rule& rule : rules_) ids.push_back(rule.id);
  return ids;
}

const Rule* Catalog::find(std::string_view id) const {
  const std::string wanted = canonical(id);
  auto found = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) { return rule.id == wanted; });
  return found == rules_.end() ? nullptr : &*found;
}

const Catalog& catalog() { return program_catalog(); }

RuleRegistration::RuleRegistration(std::string_view identifier, Level level, ApiRange apis, Declaration declaration,
                                   std::unique_ptr<RuleBody> (*make_body)()) {
  program_catalog().add(Rule{canonical(identifier), level, apis, std::move(declaration), make_body});
}

std::span<const Group> groups() { return kGroups; }

const Group& group_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Group& group : kGroups) {
    if (group.name == name) return group;
    names.emplace_back(group.name);
  }
  throw std::runtime_error(fmt::format("no group of rules '{}': {}", name, suggestion(name, names)));
}

std::size_t group_position(std::string_view letters) {
  const auto* const found =
      std::find_if(kTitles.begin(), kTitles.end(), [&](const auto& entry) { return entry.first == letters; });
  return static_cast<std::size_t>(found - kTitles.begin());
}

std::string_view group_title(std::string_view letters) {
  const std::size_t position = group_position(letters);
  return position < kTitles.size() ? kTitles[position].second : std::string_view();
}

std::vector<const Rule*> select_rules(const Catalog& catalog, std::span<const std::string> patterns,
                                      const Extent& extent) {
  std::vector<bool> wanted(catalog.rules().size(), patterns.empty());
  for (const std::string& pattern : split_at_commas(patterns)) {
    const std::string glob = canonical(pattern);
    bool matched = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (fnmatch(glob.c_str(), catalog.rules()[i].id.c_str(), 0) != 0) continue;
      wanted[i] = true;
      matched = true;
    }
    if (!matched) throw_no_match(catalog, pattern);
  }
  std::vector<const Rule*> selected;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Rule& rule = catalog.rules()[i];
    if (wanted[i] && extent.includes(rule.declaration)) selected.push_back(&rule);
  }
  return selected;
}

bool ask_for_nccl(const Catalog& catalog, std::span<const std::string> patterns) {
  const std::vector<std::string> parts = split_at_commas(patterns);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    const std::vector<const Rule*> rules = select_rules(catalog, std::vector{part});
    return std::all_of(rules.begin(), rules.end(), [](const Rule* rule) { return rule->declaration.runs_nccl; });
  });
}

}  // namespace plugfest::conformance
