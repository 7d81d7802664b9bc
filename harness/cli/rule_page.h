// The page of a rule: the output of `plugfest explain`, and a section of docs/rules.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"

namespace plugfest::cli {

/// Names of the mutants that each rule must catch, by the rule's id.
using MutantsByRule = std::map<std::string, std::vector<std::string>, std::less<>>;
/// Errors: std::runtime_error if the library of the mutants is not built.
MutantsByRule mutants_by_rule();

/// The page for a terminal of 80 columns. `mutants`: null if they are unknown.
std::string console_page(const conformance::Rule& rule, const MutantsByRule* mutants);

/// docs/rules.md: all rules of the catalogue.
std::string rules_document(const conformance::Catalogue& catalogue, const MutantsByRule& mutants);

}  // namespace plugfest::cli
