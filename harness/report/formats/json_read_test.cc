#include "harness/report/formats/json_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "harness/report/document.h"
#include "harness/report/formats/json.h"

namespace plugfest::report {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

TEST(JsonRead, ReturnsWhatWasWritten) {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.plugin_path = "/x/libfoo.so";
  run.plugin_name = "foo";
  run.apis = {12, 8};
  run.api = 8;
  run.seed = 18446744073709551615u;
  run.seconds = 1.5;
  run.rules.push_back({.id = "CN-06",
                       .title = "connect never waits",
                       .level = 'S',
                       .verdict = Verdict::kWarn,
                       .seconds = 0.5,
                       .start = 1.25,
                       .message = "expected \"x\"\ngot\ty",
                       .known = "reason",
                       .rerun = "plugfest run",
                       .path = "a.eth0 b.eth0",
                       .ranks = {{.name = "a.eth0", .last_calls = {"listen"}, .log = {"l"}, .output = "o"}},
                       .group = "connect"});
  run.rules[0].ranks[0].calls = {
      {.thread = "prog", .call = "test(request 0x1)", .result = "not done", .start = 0.5, .end = 1.5, .count = 7}};
  run.rules[0].capture = Capture{.file = "CN-06.pcapng",
                                 .packets = {{.time = -0.5,
                                              .from = "a.eth0",
                                              .to = "b.eth0",
                                              .what = "ACK",
                                              .queue_pair = 7,
                                              .psn = 16777215,
                                              .bytes = 4096,
                                              .mark = "RNR NAK"}},
                                 .left_out = 9};
  run.rules[0].cause = {.call = "test", .place = "read at p.c:56"};
  run.rules[0].faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = {}, .start = 0.5, .end = 0.75}};
  run.rules[0].nics = {{"a.eth0", {{"icrc_errors", 3}, {"timeouts", 1}}}};
  run.faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = "CN-06", .start = 1.5, .end = 1.75}};
  run.missed_faults = {{.fault = "host b killed", .source = "f.yaml:3", .reason = "never"}};
  run.unfelt_faults = {{.fault = "loss 1%", .source = "f.yaml:4", .reason = "unused"}};
  run.devices = {{.interface = "a.eth0", .device = "foo0", .index = 1, .found_by = "trial"}};
  run.transport = {.verbs_library = "/lib/x", .is_nic = true, .packets = 7};
  run.environment = {"NCCL_DEBUG=INFO"};
  document.version = "1.2.3";
  document.environment = {.kernel = "k", .cpu = "c", .nic = "roce", .layout = "l", .topology = "t", .privileges = "p"};
  document.loader =
      Loader{.nccl = "2.28.9", .api = 11, .name = "foo", .devices = 2, .network = "n", .deviation = "", .log = "x"};
  document.fabric = {.nodes = {{.name = "a"}, {.name = "s1", .tier = 1}},
                     .links = {{.from = "a.eth0",
                                .to = "s1.eth0",
                                .subnet = "10.0.0.0/31",
                                .rate_bits_per_second = 1000000000,
                                .delay = 5e-6}}};
  document.pairs = {{.subject = "foo v8",
                     .from = "a.eth0",
                     .to = "b.eth0",
                     .verdict = Verdict::kWarn,
                     .message = "0.1 × the median",
                     .bits_per_second = 1e9,
                     .latency_p50 = 4e-6,
                     .latency_p99 = 9e-6},
                    {.subject = "foo v8",
                     .from = "b.eth0",
                     .to = "a.eth0",
                     .message = "",
                     .bits_per_second = {},
                     .latency_p50 = {},
                     .latency_p99 = {}}};
  document.curves = {{.measure = "bandwidth, one comm",
                      .unit = "Gbit/s",
                      .subject = "line rate",
                      .kind = Curve::Kind::kLimit,
                      .points = {{8, 1.5}, {4096, 2.5}}}};
  document.stop_signal = 2;
  const Document again = read_document(to_json(document));
  EXPECT_EQ(to_json(again), to_json(document));
  const std::vector<report::Run>& runs = again.runs;
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].seed, run.seed);
  ASSERT_EQ(runs[0].rules.size(), 1u);
  const RuleResult& rule = runs[0].rules[0];
  EXPECT_EQ(rule.id, "CN-06");
  EXPECT_EQ(rule.level, 'S');
  EXPECT_EQ(rule.verdict, Verdict::kWarn);
  EXPECT_EQ(rule.message, "expected \"x\"\ngot\ty");
  EXPECT_EQ(rule.known, "reason");
  EXPECT_EQ(rule.path, "a.eth0 b.eth0");
  EXPECT_THAT(rule.ranks.at(0).last_calls, ElementsAre("listen"));
}

std::string refusal(const std::string& text) {
  try {
    read_document(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonRead, RefusesOtherFiles) {
  for (const char* text : {"", "{}", "[]", "<html>", "{\"schema\": \"1\"}", "{\"schema\": 1, \"runs\": [{}]}",
                           "{\"schema\": 1, \"runs\": 7}"}) {
    EXPECT_THAT(refusal(text), StartsWith("not a results.json of plugfest: ")) << text;
  }
  EXPECT_EQ(refusal("{}"), "not a results.json of plugfest: key 'schema' not found");
  EXPECT_THAT(refusal(""), StartsWith("not a results.json of plugfest: parse error at line 1, column 1: "));
  const std::string good = to_json(Document());
  for (const auto& [field, reason] :
       {std::pair(R"("pairs": [{"subject": "", "from": "", "to": "", "verdict": "nice", "message": ""}])",
                  "\"nice\" is no verdict"),
        std::pair(R"("pairs": [{"subject": "", "from": "", "to": "", "verdict": "pass", "message": "",
                     "bits_per_second": -1}])",
                  "-1: not a figure"),
        std::pair(R"("curves": [{"measure": "", "unit": "", "subject": "", "kind": "line", "points": []}])",
                  "\"line\" is no kind of curve")}) {
    EXPECT_EQ(refusal("{" + std::string(field) + "," + good.substr(1)), reason);
  }
  EXPECT_EQ(refusal("{\"schema\": 2}"), "schema 2: this plugfest reads schema 1; use the plugfest that wrote the file");
}

}  // namespace
}  // namespace plugfest::report
