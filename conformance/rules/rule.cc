#include "conformance/rules/rule.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "conformance/rules/groups.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {
namespace {

/// Returns the id in the catalogue's form: upper case, with '-'.
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

Catalogue& program_catalogue() {
  static Catalogue catalogue;
  return catalogue;
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

void Catalogue::add(Rule rule) {
  if (!well_formed(rule.id)) throw std::logic_error("rule id '" + rule.id + "': expected a form such as CN-06");
  if (find(rule.id) != nullptr) throw std::logic_error("rule " + rule.id + " is declared twice");
  const auto position = std::upper_bound(rules_.begin(), rules_.end(), rule, [](const Rule& left, const Rule& right) {
    return contract_order(left) < contract_order(right);
  });
  rules_.insert(position, std::move(rule));
}

std::vector<std::string> Catalogue::ids() const {
  std::vector<std::string> ids;
  for (const Rule& rule : rules_) ids.push_back(rule.id);
  return ids;
}

const Rule* Catalogue::find(std::string_view id) const {
  const std::string wanted = canonical(id);
  auto found = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) { return rule.id == wanted; });
  return found == rules_.end() ? nullptr : &*found;
}

const Catalogue& catalogue() { return program_catalogue(); }

RuleDeclaration::RuleDeclaration(std::string_view identifier, Level level, ApiRange apis, Clause clause,
                                 std::unique_ptr<RuleBody> (*make_body)()) {
  program_catalogue().add(Rule{canonical(identifier), level, apis, std::move(clause), make_body});
}

}  // namespace plugfest::conformance
