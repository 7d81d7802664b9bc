// plugfest schema: the results of runs correspond to it.

#include <algorithm>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::IsEmpty;

// Compares documents with a schema. Supports the keywords that plugfest writes, and reports others.
class Validator {
 public:
  // The places where the document deviates from the schema, or has a member that the schema lacks.
  const std::vector<std::string>& errors() const { return errors_; }

  void check(const json& value, const json& schema, const std::string& place) {
    for (const auto& [keyword, expected] : schema.items()) {
      if (keyword == "type") {
        require(has_type(value, expected), place + ": not of type " + expected.dump());
      } else if (keyword == "const") {
        require(value == expected, place + ": not " + expected.dump());
      } else if (keyword == "enum") {
        require(std::find(expected.begin(), expected.end(), value) != expected.end(), place + ": not in the enum");
      } else if (keyword == "minimum") {
        require(value >= expected, place + ": below the minimum");
      } else if (keyword == "minItems") {
        require(value.size() >= expected, place + ": too few items");
      } else if (keyword == "maxItems") {
        require(value.size() <= expected, place + ": too many items");
      } else if (keyword == "required") {
        for (const json& name : expected)
          require(value.contains(name.get<std::string>()), place + ": lacks " + name.dump());
      } else if (keyword == "properties") {
        check_members(value, schema, place);
      } else if (keyword == "additionalProperties") {
        if (!schema.contains("properties"))
          for (const auto& [name, member] : value.items()) check(member, expected, place + "." + name);
      } else if (keyword == "items" || keyword == "prefixItems") {
        for (std::size_t i = 0; i < value.size(); ++i)
          check(value[i], keyword == "items" ? expected : expected.at(i), place + "[" + std::to_string(i) + "]");
      } else {
        require(keyword == "$schema" || keyword == "title" || keyword == "description",
                place + ": keyword " + keyword + " is not supported");
      }
    }
  }

 private:
  static bool has_type(const json& value, const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_boolean()
           : type == "integer" ? value.is_number_integer()
                               : type == "number" && value.is_number();
  }
  void check_members(const json& value, const json& schema, const std::string& place) {
    for (const auto& [name, member] : value.items()) {
      const auto found = schema["properties"].find(name);
      require(found != schema["properties"].end(), place + ": the schema lacks " + name);
      if (found != schema["properties"].end()) check(member, *found, place + "." + name);
    }
  }
  void require(bool holds, const std::string& error) {
    if (!holds) errors_.push_back(error);
  }

  std::vector<std::string> errors_;
};

std::vector<std::string> deviations(const json& document) {
  const Finished schema = plugfest("schema");
  EXPECT_EQ(schema.exit_code, 0) << schema.output;
  Validator validator;
  validator.check(document, json::parse(schema.output), "document");
  return validator.errors();
}

TEST_F(RunTest, ResultsCorrespondToTheSchema) {
  ASSERT_EQ(judge("--plugin " PLUGFEST_MUTANTS "/libnccl-net-connect_waits_for_accept.so --rule CN-06 --rule DP-01 "
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
  ASSERT_EQ(judge("--rule DP-01"), 0) << output();
  const json results = read_results();
  const auto deviations_with = [&](const std::string& place, const json& value) {
    json changed = results;
    changed[json::json_pointer(place)] = value;
    return deviations(changed);
  };
  using testing::ElementsAre;
  EXPECT_THAT(deviations_with("/schema", 2), ElementsAre("document.schema: not 1"));
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
