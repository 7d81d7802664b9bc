#include "conformance/rules/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "conformance/rules/rule_body.h"
#include "fabric/system/process.h"
#include "fabric/system/testing.h"

namespace plugfest::conformance {
namespace {

using ::testing::ElementsAre;

Catalog three_rules() {
  Catalog catalog;
  for (const char* id : {"XF-26", "CN-06", "CN-07"}) catalog.add(Rule{.id = id});
  return catalog;
}

std::vector<std::string> ids(const std::vector<const Rule*>& rules) {
  std::vector<std::string> result;
  for (const Rule* rule : rules) result.push_back(rule->id);
  return result;
}

std::vector<std::string> select(const std::vector<std::string>& patterns) {
  const Catalog catalog = three_rules();
  return ids(select_rules(catalog, patterns));
}

TEST(SelectRules, NoPatternSelectsAllInContractOrder) {
  EXPECT_THAT(select({}), ElementsAre("CN-06", "CN-07", "XF-26"));
}

TEST(SelectRules, AGlobSelectsAGroup) { EXPECT_THAT(select({"CN-*"}), ElementsAre("CN-06", "CN-07")); }

TEST(SelectRules, CommasRepetitionsAndSpellingsAreAccepted) {
  EXPECT_THAT(select({"xf_26,CN-07", "CN-07"}), ElementsAre("CN-07", "XF-26"));
}

std::string refusal(const std::string& pattern) {
  return error_message([&] { select({"CN-06", pattern}); });
}

TEST(SelectRules, TheErrorNamesAnUnknownRule) {
  EXPECT_EQ(refusal("ZZ-99"), "no rule matches 'ZZ-99': " + program_as_typed() + " rules lists them");
  EXPECT_EQ(refusal("cn-66"), "no rule matches 'cn-66': did you mean CN-06?");
}

TEST(SelectRules, TheErrorNamesAnUnknownGroup) {
  EXPECT_EQ(refusal("@smok"), "no group of rules '@smok': did you mean @smoke?");
  EXPECT_EQ(refusal("@all"), "no group of rules '@all': expected one of @smoke");
}

TEST(SelectRules, TheExtentLeavesRulesOut) {
  Catalog catalog = three_rules();
  Rule nccl{.id = "EE-01"}, thorough{.id = "XF-32"};
  nccl.declaration.runs_nccl = true;
  thorough.declaration.thorough = true;
  catalog.add(nccl);
  catalog.add(thorough);
  EXPECT_THAT(ids(select_rules(catalog, {}, {})), ElementsAre("CN-06", "CN-07", "XF-26"));
  EXPECT_THAT(ids(select_rules(catalog, {}, {.thorough = true})), ElementsAre("CN-06", "CN-07", "XF-26", "XF-32"));
  EXPECT_TRUE(ask_for_nccl(catalog, std::vector<std::string>{"CN-06,ee_01"}));
  EXPECT_TRUE(ask_for_nccl(catalog, std::vector<std::string>{"EE-*"}));
  EXPECT_FALSE(ask_for_nccl(catalog, std::vector<std::string>{"*"}));
  EXPECT_FALSE(ask_for_nccl(catalog, {}));
}

TEST(Groups, HaveATitleAndNameEachRuleOnce) {
  for (const Group& group : groups()) {
    EXPECT_TRUE(group.name.starts_with('@')) << group.name;
    EXPECT_FALSE(group.title.empty()) << group.name;
    EXPECT_EQ(std::set<std::string_view>(group.rules.begin(), group.rules.end()).size(), group.rules.size());
  }
}

TEST(Catalog, RefusesDuplicateAndMalformedIds) {
  Catalog catalog = three_rules();
  EXPECT_THROW(catalog.add(Rule{.id = "CN-06"}), std::logic_error);
  EXPECT_THROW(catalog.add(Rule{.id = "CN6"}), std::logic_error);
}

TEST(ApiRange, DescribesItsVersions) {
  EXPECT_EQ(ApiRange::all().describe(), "all versions");
  EXPECT_EQ(ApiRange::from(11).describe(), "v11 and later");
  EXPECT_EQ(ApiRange::up_to(10).describe(), "up to v10");
  EXPECT_TRUE(ApiRange::from(9).contains(12));
  EXPECT_FALSE(ApiRange::up_to(10).contains(11));
}

}  // namespace
}  // namespace plugfest::conformance
