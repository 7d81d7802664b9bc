// plugfest schema: the results of runs correspond to it.

#include <algorithm>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::IsEmpty;

// Adds to `errors` the places where a value deviates from its schema, or has a member that the schema lacks. Supports
// the keywords that plugfest writes, and reports others.
void compare(const json& value, const json& schema, const std::string& place, std::vector<std::string>& errors) {
  const auto require = [&](bool holds, const std::string& error) {
    if (!holds) errors.push_back(place + ": " + error);
  };
  for (const auto& [keyword, expected] : schema.items()) {
    if (keyword == "type") {
      require(expected == "integer" ? value.is_number_integer() : expected == value.type_name(),
              "not of type " + expected.dump());
    } else if (keyword == "const") {
      require(value == expected, "not " + expected.dump());
    } else if (keyword == "enum") {
      require(std::find(expected.begin(), expected.end(), value) != expected.end(), "not in the enum");
    } else if (keyword == "minimum") {
      require(value >= expected, "below the minimum");
    } else if (keyword == "minItems") {
      require(value.size() >= expected, "too few items");
    } else if (keyword == "maxItems") {
      require(value.size() <= expected, "too many items");
    } else if (keyword == "required") {
      for (const json& name : expected) require(value.contains(name.get<std::string>()), "lacks " + name.dump());
    } else if (keyword == "properties" || (keyword == "additionalProperties" && !schema.contains("properties"))) {
      for (const auto& [name, member] : value.items()) {
        const bool known = keyword == "additionalProperties" || expected.contains(name);
        require(known, "the schema lacks " + name);
        const json& its = keyword == "properties" && known ? expected[name] : expected;
        if (known) compare(member, its, place + "." + name, errors);
      }
    } else if (keyword == "items" || keyword == "prefixItems") {
      for (std::size_t i = 0; i < value.size(); ++i)
        compare(value[i], keyword == "items" ? expected : expected.at(i), place + "[" + std::to_string(i) + "]",
                errors);
    } else {
      require(
          keyword == "$schema" || keyword == "title" || keyword == "description" || keyword == "additionalProperties",
          "keyword " + keyword + " is not supported");
    }
  }
}

std::vector<std::string> deviations(const json& document) {
  std::vector<std::string> errors;
  compare(document, json::parse(output_of(plugfest("schema"))), "document", errors);
  return errors;
}

TEST_F(RunTest, ResultsCorrespondToTheSchema) {
  ASSERT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-connect_waits_for_accept.so --rule CN-06 --rule DP-01 "
                      "--faults delay=1ms --timeout-scale 0.1 --repeat 2 --pcap packets"),
            1)
      << output();
  EXPECT_THAT(deviations(read_results()), IsEmpty());
}

TEST_F(RunTest, ResultsOfMutantsCorrespondToTheSchema) {
  ASSERT_EQ(plugfest("mutants --mutant device_129_exists --json r.json"), 0) << output();
  EXPECT_THAT(deviations(read_results()), IsEmpty());
}

TEST_F(RunTest, TheSchemaFindsInvalidResults) {
  ASSERT_EQ(run_rules("--rule DP-01"), 0) << output();
  const json results = read_results();
  const auto deviations_with = [&](const std::string& place, const json& value) {
    json changed = results;
    changed[json::json_pointer(place)] = value;
    return deviations(changed);
  };
  using testing::ElementsAre;
  EXPECT_THAT(deviations_with("/schema", 1), ElementsAre("document.schema: not 2"));
  EXPECT_THAT(deviations_with("/runs/0/rules/0/verdict", "good"),
              ElementsAre("document.runs[0].rules[0].verdict: not in the enum"));
  EXPECT_THAT(deviations_with("/runs/0/seed", "7"),
              testing::Contains("document.runs[0].seed: not of type \"integer\""));
  EXPECT_THAT(deviations_with("/runs/0/new", 1), ElementsAre("document.runs[0]: the schema lacks new"));
  json without = results;
  without["tool"].erase("version");
  EXPECT_THAT(deviations(without), ElementsAre("document.tool: lacks \"version\""));
}

}  // namespace
}  // namespace plugfest::cli
