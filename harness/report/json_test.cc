#include "harness/report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/testing.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::StartsWith;

Document full_document() {
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
  run.ineffective_faults = {{.fault = "loss 1%", .source = "f.yaml:4", .reason = "unused"}};
  run.devices = {{.interface = "a.eth0", .device = "foo0", .index = 1, .found_by = "trial"}};
  run.transport = {.verbs_library = "/lib/x", .is_nic = true, .packets = 7};
  run.environment = {"NCCL_DEBUG=INFO"};
  document.version = "1.2.3";
  document.environment = {.kernel = "k", .cpu = "c", .nic = "roce", .layout = "l", .topology = "t", .privileges = "p"};
  document.fabric = {.nodes = {{.name = "a"}, {.name = "s1", .tier = 1}},
                     .links = {{.from = "a.eth0",
                                .to = "s1.eth0",
                                .subnet = "10.0.0.0/31",
                                .rate_bits_per_second = 1000000000,
                                .delay = 5e-6}}};
  document.release = {.nccl = "2.30.7", .unused = {"GIN v11"}};
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
  return document;
}

TEST(Json, GroupsBadRulesByCause) {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.environment = {"NCCL_DEBUG=INFO"};
  for (const char* id : {"XF-09", "XF-12", "XF-14"}) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = id;
    rule.verdict = Verdict::kTimeout;
    rule.cause = {"test", "read at p.c:56"};
  }
  run.rules[1].verdict = Verdict::kPass;
  const auto json = nlohmann::json::parse(to_json(document))["runs"][0];
  EXPECT_EQ(
      json["causes"].dump(),
      "[{\"rules\":[\"XF-09\",\"XF-14\"],\"start\":\"XF-09\",\"text\":\"2 rules hang in read at p.c:56 (test)\"}]");
  EXPECT_EQ(json["environment"], std::vector<std::string>{"NCCL_DEBUG=INFO"});
}

TEST(Json, HasTheDocumentedFields) {
  const auto json = nlohmann::json::parse(to_json(full_document()));
  EXPECT_EQ(json["schema"], kSchema);
  EXPECT_EQ(json["tool"]["version"], "1.2.3");
  EXPECT_EQ(json["environment"]["topology"], "t");
  EXPECT_EQ(json["fabric"]["links"].at(0)["rate"], 1000000000);
  EXPECT_EQ(json["release"]["unused"].at(0), "GIN v11");
  EXPECT_EQ(json["curves"].at(0)["kind"], "limit");
  EXPECT_EQ(json["curves"].at(0)["points"].at(1), (std::vector<double>{4096, 2.5}));
  const auto& run = json["runs"].at(0);
  EXPECT_EQ(run["plugin"]["versions"], (std::vector<int>{12, 8}));
  EXPECT_EQ(run["api"], 8);
  EXPECT_EQ(run["missed_faults"].at(0)["reason"], "never");
  EXPECT_EQ(run["ineffective_faults"].at(0)["reason"], "unused");
  EXPECT_EQ(run["faults"].at(0)["fault"], "link a-b down");
  EXPECT_EQ(run["faults"].at(0)["source"], "f.yaml:2");
  EXPECT_EQ(run["faults"].at(0)["rule"], "CN-06");
  EXPECT_EQ(run["faults"].at(0)["start"], 1.5);
  EXPECT_EQ(run["faults"].at(0)["end"], 1.75);
  const auto& rule = run["rules"].at(0);
  EXPECT_EQ(rule["title"], "connect never waits");
  EXPECT_EQ(rule["verdict"], "warn");
  EXPECT_EQ(rule["message"], "expected \"x\"\ngot\ty");
  EXPECT_EQ(rule["ranks"].at(0)["last_calls"].at(0), "listen");
  EXPECT_EQ(rule["nics"]["a.eth0"]["icrc_errors"], 3);
  EXPECT_EQ(rule["faults"].at(0)["end"], 0.75);
}

TEST(Json, OmitsFaultsIfThereAreNone) {
  Document document;
  document.runs.emplace_back().rules.emplace_back();
  const auto run = nlohmann::json::parse(to_json(document))["runs"].at(0);
  EXPECT_FALSE(run.contains("faults"));
  EXPECT_FALSE(run["rules"].at(0).contains("faults"));
}

TEST(Json, CountsEveryVerdict) {
  const auto summary = nlohmann::json::parse(to_json(full_document()))["summary"];
  EXPECT_EQ(summary.size(), kVerdicts.size());
  EXPECT_EQ(summary["warn"], 1);
  EXPECT_EQ(summary["pass"], 0);
}

TEST(Json, ReplacesInvalidUtf8) {
  Document document = full_document();
  document.runs[0].rules[0].ranks[0].output = "\xff\x01";
  const auto json = nlohmann::json::parse(to_json(document));
  EXPECT_EQ(json["runs"].at(0)["rules"].at(0)["ranks"].at(0)["output"], "\xef\xbf\xbd\x01");
}

TEST(Json, ReturnsWhatWasWritten) {
  const Document document = full_document();
  const Document again = read_document(to_json(document));
  EXPECT_EQ(to_json(again), to_json(document));
  ASSERT_EQ(again.runs.size(), 1u);
  EXPECT_EQ(again.runs[0].seed, 18446744073709551615u);
  EXPECT_NE(again.stop_signal, 0);
}

std::string refusal(const std::string& text) {
  return error_message([&] { read_document(text); });
}

TEST(Json, ReplacesControlCharactersOfFiles) {
  Document document = full_document();
  document.runs[0].plugin_path = "/tmp/\033[2J\a\xc2\x9b\xe2\x82\xac";
  document.runs[0].rules[0].message = "one\n\ttwo\r";
  const Document read = read_document(to_json(document));
  EXPECT_EQ(read.runs[0].plugin_path, "/tmp/?[2J???\xe2\x82\xac");
  EXPECT_EQ(read.runs[0].rules[0].message, "one\n\ttwo?");
}

TEST(Json, RefusesDeeplyNestedFiles) {
  constexpr std::size_t kDepth = 1'000'000;
  EXPECT_EQ(refusal(std::string(kDepth, '[') + std::string(kDepth, ']')),
            "not a results.json of plugfest: 100 nested lists or objects are too many");
}

TEST(Json, SaysWhyAFileIsRefused) {
  for (const char* text : {"", "{}", "[]", "<html>", "{\"schema\": \"1\"}", "{\"schema\": 2, \"runs\": [{}]}",
                           "{\"schema\": 2, \"runs\": 7}"})
    EXPECT_THAT(refusal(text), StartsWith("not a results.json of plugfest: ")) << text;
  EXPECT_EQ(refusal("{}"), "not a results.json of plugfest: schema is missing");
  EXPECT_THAT(refusal(""), StartsWith("not a results.json of plugfest: parse error at line 1, column 1: "));
  const std::string good = to_json(Document());
  for (const auto& [field, reason] :
       {std::pair(R"("pairs": [{"subject": "", "from": "", "to": "", "verdict": "nice", "message": ""}])",
                  "pairs[0].verdict: \"nice\" is none of pass, warn, info, fail, error, skip, n/a, crash, timeout, "
                  "missing, waived"),
        std::pair(R"("pairs": [{"subject": "", "from": "", "to": "", "verdict": "pass", "message": "",
                     "bits_per_second": -1}])",
                  "pairs[0].bits_per_second: -1: not a figure"),
        std::pair(R"("curves": [{"measure": "", "unit": "", "subject": "", "kind": "line", "points": []}])",
                  "curves[0].kind: \"line\" is none of subject, reference, limit")}) {
    EXPECT_EQ(refusal("{" + std::string(field) + "," + good.substr(1)),
              "not a results.json of plugfest: " + std::string(reason));
  }
  EXPECT_EQ(refusal("{\"schema\": 1}"), "schema 1: this plugfest reads schema 2; use the plugfest that wrote the file");
}

constexpr const char* kBench = R"({"schema": 1, "tool": {"version": "1", "commit": ""},
  "environment": {"kernel": "k", "cpu": "c", "privileges": "root", "load": [0, 0]}, "line_rate": 10000000000, "rows": [
  {"name": "bw-4K", "subject": "perftest", "size": 4096, "value": 2.5, "unit": "Gbit/s"},
  {"name": "bw-4K", "subject": "Mesh", "size": 4096, "value": 2, "unit": "Gbit/s"},
  {"name": "bw-1M", "subject": "Mesh", "size": 1048576, "value": 8, "unit": "Gbit/s"},
  {"name": "bw-4x1M", "subject": "Mesh", "size": 1048576, "value": 9, "unit": "Gbit/s"},
  {"name": "bw-both-1M", "subject": "Mesh", "size": 1048576, "value": 9, "unit": "Gbit/s"},
  {"name": "lat-8", "subject": "Mesh", "size": 8, "value": 5, "unit": "µs"},
  {"name": "lat-p99-8", "subject": "Mesh", "size": 8, "value": 9, "unit": "µs"}]})";

Document read_any(const std::string& text) {
  const ScratchFolder folder;
  const std::string path = (folder / "x.json").string();
  std::ofstream(path) << text;
  try {
    return read_results_or_curves(path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string(error.what()).substr(path.size()));
  }
}

TEST(Curves, ShowBandwidthAndLatencyOfBenchNet) {
  const std::vector<Curve> curves = read_any(kBench).curves;
  ASSERT_EQ(curves.size(), 4u);
  EXPECT_EQ(curves[0].subject, "perftest");
  EXPECT_EQ(curves[0].kind, Curve::Kind::kReference);
  EXPECT_EQ(curves[1].kind, Curve::Kind::kLimit);
  EXPECT_THAT(curves[1].points, ElementsAre(Pair(4096, 10), Pair(1048576, 10)));
  EXPECT_EQ(curves[2].measure, "bandwidth, one comm");
  EXPECT_THAT(curves[2].points, ElementsAre(Pair(4096, 2), Pair(1048576, 8)));
  EXPECT_EQ(curves[3].unit, "µs");
  EXPECT_THAT(curves[3].points, ElementsAre(Pair(8, 5)));
}

TEST(Curves, ShowBusBandwidthOfCollectives) {
  const Document document = read_any(
      R"({"tool": "plugfest coll", "collective": "allreduce", "topology": "triangle", "nic": "roce", "sizes": [
      {"bytes": 8, "results": [{"plugin": "/x/libfoo.so", "busbw": 0.5}, {"plugin": "nccl:IB", "busbw": 1}]}]})");
  ASSERT_EQ(document.curves.size(), 2u);
  EXPECT_EQ(document.curves[0].measure, "bus bandwidth of allreduce");
  EXPECT_EQ(document.curves[0].subject, "libfoo.so");
  EXPECT_EQ(document.environment.nic, "roce");
}

TEST(Curves, ShowMemoryAndDescriptorsOfASoak) {
  const auto read_series = [](const std::string& series) {
    return read_any(R"({"topology": "triangle", "nic": "roce", "seconds": 2, "rounds": 2, "message": "", "leaks": [],
                        "growth": [], "series": [)" +
                    series + "]}");
  };
  const Document document = read_series(
      R"({"seconds": 1, "messages": 4096, "ranks": [
           {"rank": "a", "resident_bytes": 1048576, "descriptors": 20, "threads": 3}]},
         {"seconds": 2, "messages": 8192, "ranks": [
           {"rank": "a", "resident_bytes": 2097152, "descriptors": 21, "threads": 3}]})");
  ASSERT_EQ(document.curves.size(), 2u);
  EXPECT_EQ(document.curves[0].measure, "resident memory");
  EXPECT_EQ(document.curves[0].axis, Curve::Axis::kMessages);
  EXPECT_THAT(document.curves[0].points, ElementsAre(Pair(4096, 1), Pair(8192, 2)));
  EXPECT_THAT(document.curves[1].points, ElementsAre(Pair(4096, 20), Pair(8192, 21)));
  EXPECT_EQ(document.environment.topology, "triangle");
  EXPECT_EQ(error_message([&] { read_series(""); }), ": has no rounds of plugfest soak");
}

std::string refusal_of_any(const std::string& text) {
  return error_message([&] { read_any(text); });
}

TEST(Curves, AreNotReadFromOtherFiles) {
  EXPECT_THAT(refusal_of_any("[1]"), testing::StartsWith(": not a results.json of plugfest: "));
  EXPECT_THAT(refusal_of_any("{\"rows\": []}"), testing::StartsWith(": not a results.json of plugfest: "));
  EXPECT_EQ(refusal_of_any("{\"schema\": 1}"),
            ": schema 1: this plugfest reads schema 2; use the plugfest that wrote the file");
  std::string negative = kBench;
  negative.replace(negative.find("2.5"), 3, "-25");
  EXPECT_EQ(refusal_of_any(negative), ": not a results.json of plugfest: rows[0].value: -25: not a figure");
  std::string none = kBench;
  none.resize(none.find("\"rows\""));
  EXPECT_EQ(refusal_of_any(none + "\"rows\": []}"), ": has no figures by message size; expected bench net --json");
}

}  // namespace
}  // namespace plugfest::report
