#include "harness/report/formats/badge.h"

#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

std::string badge_of(Verdict verdict, const std::string& name = "foo") {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.plugin_name = name;
  run.api = 8;
  run.rules.emplace_back().verdict = verdict;
  return to_badge(document);
}

std::string expected(const std::string& message, const std::string& colour) {
  return "{\"schemaVersion\": 1, \"label\": \"plugfest\", \"message\": \"" + message + "\", \"color\": \"" + colour +
         "\"}\n";
}

TEST(Badge, HasAColourForEachExitCode) {
  EXPECT_EQ(badge_of(Verdict::kPass), expected("foo v8: 1 pass", "brightgreen"));
  EXPECT_EQ(badge_of(Verdict::kWarn), expected("foo v8: 1 warn", "yellow"));
  EXPECT_EQ(badge_of(Verdict::kTimeout), expected("foo v8: 1 timeout", "red"));
  EXPECT_EQ(badge_of(Verdict::kError), expected("foo v8: 1 error", "lightgrey"));
}

TEST(Badge, QuotesNamesOfPlugins) {
  EXPECT_EQ(badge_of(Verdict::kPass, "a\"b\\"), expected("a\\\"b\\\\ v8: 1 pass", "brightgreen"));
  Document document;
  document.runs.resize(2);
  EXPECT_EQ(to_badge(document), expected("no rules", "lightgrey"));
}

}  // namespace
}  // namespace plugfest::report
