#include "harness/report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fabric/system/testing.h"

namespace plugfest::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

RuleResult broken_rule(const std::string& id) {
  RuleResult rule;
  rule.id = id;
  rule.verdict = Verdict::kFail;
  rule.message = "sizes[1] = 4096";
  rule.ranks.push_back({.name = "a.eth0", .last_calls = {"isend"}, .log = {"WARN boo"}, .output = "bye"});
  return rule;
}

Document document_of(const std::vector<RuleResult>& rules) {
  Document document;
  Run& run = document.runs.emplace_back();
  run.plugin_name = "f<o>o";
  run.api = 8;
  run.rules = rules;
  return document;
}

std::string data_text(const std::string& page) {
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(start) + start.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

nlohmann::json data_of(const std::string& page) { return nlohmann::json::parse(data_text(page)); }

TEST(Html, HasTheDocumentsAsData) {
  const Document document = document_of({broken_rule("XF-26")});
  const nlohmann::json data = data_of(to_html(std::vector{document, document}));
  EXPECT_THAT(data["notes"], IsEmpty());
  ASSERT_EQ(data["documents"].size(), 2u);
  EXPECT_EQ(data["documents"][1]["runs"][0]["rules"][0]["ranks"][0]["log"][0], "WARN boo");
}

TEST(Html, TextOfPluginsCannotEndTheData) {
  RuleResult rule = broken_rule("XF-26");
  rule.message = "</script><script>alert(1)</script><!-- & \xff";
  const std::string page = to_html(document_of({rule}));
  EXPECT_THAT(data_text(page), AllOf(Not(HasSubstr("<")), Not(HasSubstr(">")), Not(HasSubstr("&"))));
  EXPECT_EQ(data_of(page)["documents"][0]["runs"][0]["rules"][0]["message"],
            "</script><script>alert(1)</script><!-- & \xef\xbf\xbd");
  EXPECT_THAT(page, HasSubstr("<title>f&lt;o&gt;o: plugfest report</title>"));
}

TEST(Html, NeedsNoExternalFile) {
  const std::string page = to_html(document_of({}));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("src=")), Not(HasSubstr("@import")), Not(HasSubstr("<link"))));
  EXPECT_THAT(page, HasSubstr("Copyright (c) 2022 Leon Sorokin"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
}

// Hashes of all scripts and styles, as the policy names them.
TEST(Html, ThePolicyNamesEachScriptAndStyle) {
  const std::string page = to_html(document_of({broken_rule("XF-26")}));
  const ScratchFolder folder;
  std::size_t found = 0;
  for (const std::string element : {"script", "style"}) {
    const std::string start = "<" + element + ">";
    for (std::size_t at = page.find(start); at != std::string::npos; at = page.find(start, at + 1), ++found) {
      const std::size_t begin = at + start.size();
      const std::string file = (folder / "content").string();
      std::ofstream(file) << page.substr(begin, page.find("</" + element + ">", begin) - begin);
      const Finished hash = run_shell(
          "python3 -c 'import base64, hashlib, sys; "
          "print(base64.b64encode(hashlib.sha256(open(sys.argv[1], \"rb\").read()).digest()).decode(), end=\"\")' " +
          file);
      EXPECT_THAT(page, HasSubstr("'sha256-" + hash.output + "'"));
    }
  }
  EXPECT_GE(found, 9u);
}

TEST(Html, KeepsTheLastCallsAndCountsTheOthers) {
  RuleResult rule = broken_rule("XF-26");
  for (int i = 0; i < 5; ++i) {
    rule.ranks[0].calls.push_back(
        {.thread = "prog", .call = "call " + std::to_string(i), .result = "", .start = 0, .end = 0});
  }
  rule.capture = Capture{.file = "f", .packets = std::vector<PacketRecord>(4), .left_out = 7};
  const nlohmann::json data = data_of(to_html(std::vector{document_of({rule})}, {.calls = 2, .packets = 3}));
  const nlohmann::json& shown = data["documents"][0]["runs"][0]["rules"][0];
  ASSERT_EQ(shown["ranks"][0]["calls"].size(), 2u);
  EXPECT_EQ(shown["ranks"][0]["calls"][0]["call"], "call 3");
  EXPECT_EQ(shown["capture"]["packets"].size(), 3u);
  EXPECT_EQ(shown["capture"]["left_out"], 8);
  EXPECT_THAT(data["notes"], ElementsAre("left out: 3 earlier calls", "left out: 1 earlier packet"));
}

TEST(Html, HoldsABoundedAmountOfEvidence) {
  RuleResult large = broken_rule("XF-02");
  large.ranks[0].output = std::string(2 << 20, 'x');
  const std::string page = to_html(std::vector{document_of({broken_rule("XF-01"), large, broken_rule("XF-03")})},
                                   {.evidence_bytes = 1 << 20});
  EXPECT_LT(page.size(), 1u << 20);
  const nlohmann::json data = data_of(page);
  const nlohmann::json& rules = data["documents"][0]["runs"][0]["rules"];
  EXPECT_TRUE(rules[0].contains("ranks"));
  EXPECT_FALSE(rules[1].contains("ranks"));
  EXPECT_TRUE(rules[2].contains("ranks"));
  EXPECT_THAT(data["notes"],
              ElementsAre("left out of 1 rule: calls, packets, log and output; the page holds at most 1 MiB of them"));
}

}  // namespace
}  // namespace plugfest::report
