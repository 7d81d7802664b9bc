// Runs plugfest in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {

class RunTest : public testing::Test {
 protected:
  int plugfest(const std::vector<std::string>& arguments) {
    return wait_for(start_plugfest(arguments, folder_ / "output"));
  }
  std::string output() const { return content_of(folder_ / "output"); }
  /// The two hosts of a rule's path, which depends on the position of the rule among all rules. Their names have one
  /// letter.
  std::pair<char, char> hosts_of(const std::string& rule) {
    const std::string json = (folder_ / "path.json").string();
    EXPECT_EQ(plugfest({"run", "--rule", rule, "--json", json}), 0) << output();
    const std::string path = nlohmann::json::parse(content_of(json))["runs"][0]["rules"][0]["path"];
    return {path.at(0), path.at(path.find(' ') + 1)};
  }

  ScratchFolder folder_;
};

}  // namespace plugfest::cli
