#include "conformance/rules/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {
namespace {

using ::testing::ElementsAre;

Catalogue three_rules() {
  Catalogue catalogue;
  for (const char* id : {"XF-26", "CN-06", "CN-07"}) catalogue.add(Rule{.id = id});
  return catalogue;
}

std::vector<std::string> ids(const std::vector<const Rule*>& rules) {
  std::vector<std::string> result;
  for (const Rule* rule : rules) result.push_back(rule->id);
  return result;
}

std::vector<std::string> select(const std::vector<std::string>& patterns) {
  const Catalogue catalogue = three_rules();
  return ids(select_rules(catalogue, patterns));
}

TEST(SelectRules, NoPatternSelectsAllInContractOrder) {
  EXPECT_THAT(select({}), ElementsAre("CN-06", "CN-07", "XF-26"));
}

TEST(SelectRules, AGlobSelectsAGroup) { EXPECT_THAT(select({"CN-*"}), ElementsAre("CN-06", "CN-07")); }

TEST(SelectRules, CommasRepetitionsAndSpellingsAreAccepted) {
  EXPECT_THAT(select({"xf_26,CN-07", "CN-07"}), ElementsAre("CN-07", "XF-26"));
}

TEST(SelectRules, TheErrorNamesAnUnknownRule) {
  try {
    select({"CN-06", "ZZ-01"});
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no rule matches 'ZZ-01': plugfest rules lists them");
  }
}

TEST(Catalogue, RefusesDuplicateAndMalformedIds) {
  Catalogue catalogue = three_rules();
  EXPECT_THROW(catalogue.add(Rule{.id = "CN-06"}), std::logic_error);
  EXPECT_THROW(catalogue.add(Rule{.id = "CN6"}), std::logic_error);
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
