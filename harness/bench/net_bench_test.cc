// Rows, sizes, medians and ratios of bench net, with subjects that return prepared figures.
#include "harness/bench/net_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/testing.h"
#include "harness/bench/net_record.h"
#include "harness/bench/table.h"

namespace plugfest::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Returns prepared figures, one after the other; records the order of all measurements.
class Prepared final : public NetSubject {
 public:
  Prepared(std::string name, std::vector<std::optional<double>> figures, std::string& order)
      : name_(std::move(name)), figures_(std::move(figures)), order_(order) {}
  const std::string& name() const override { return name_; }
  std::optional<double> measure(const NetRow&, double) override {
    order_ += name_;
    return figures_.at(next_++ % figures_.size());
  }

 private:
  std::string name_;
  std::vector<std::optional<double>> figures_;
  std::string& order_;
  std::size_t next_ = 0;
};

std::string refusal_of(const std::string& sizes) {
  return error_message([&] { parse_sizes(sizes); });
}

std::vector<std::string> names_of(const std::vector<NetRow>& rows) {
  std::vector<std::string> names;
  for (const NetRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(NetBench, SubjectsTakeTurnsInEachRound) {
  std::string order;
  std::vector<std::unique_ptr<NetSubject>> subjects;
  subjects.push_back(std::make_unique<Prepared>("a", std::vector<std::optional<double>>{10, 20, 40}, order));
  subjects.push_back(std::make_unique<Prepared>("b", std::vector<std::optional<double>>{5, 30, 20}, order));
  const auto results = run_net_bench(subjects, {.rows = {net_rows({1 << 20}).front()}, .rounds = 3});
  EXPECT_EQ(order, "ababab");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].reference, "a");
  EXPECT_EQ(results[0].figures[0].value, 20);
  EXPECT_FALSE(results[0].figures[0].ratio);
  EXPECT_EQ(results[0].figures[1].value, 20);
  EXPECT_EQ(results[0].figures[1].ratio, 0.5);  // median of 0.5, 1.5, 0.5, not the ratio of medians
}

TEST(NetBench, FirstSubjectThatHasTheRowIsTheReference) {
  std::string order;
  std::vector<std::unique_ptr<NetSubject>> subjects;
  subjects.push_back(std::make_unique<Prepared>("a", std::vector<std::optional<double>>{std::nullopt}, order));
  subjects.push_back(std::make_unique<Prepared>("b", std::vector<std::optional<double>>{4}, order));
  subjects.push_back(std::make_unique<Prepared>("c", std::vector<std::optional<double>>{2}, order));
  const auto results = run_net_bench(subjects, {.rows = {net_rows({8}).front()}, .rounds = 1});
  EXPECT_EQ(results[0].reference, "b");
  EXPECT_EQ(net_heading({"a", "b", "c"}).size(), net_line(results[0]).size() - 1);  // µ has two bytes
  EXPECT_THAT(net_line(results[0]), testing::AllOf(HasSubstr(" - "), HasSubstr("2.00 (0.50)")));
  const auto json = nlohmann::json::parse(net_json(net_record(results, {}, {0, 0}, 1)));
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][1]["subject"], "c");
  EXPECT_EQ(json["rows"][1]["reference"], "b");
  EXPECT_EQ(json["rows"][1]["ratio"], 0.5);
  EXPECT_FALSE(json["rows"][0].contains("ratio"));
}

TEST(NetBench, ErrorNamesSubjectAndRow) {
  class Failing final : public NetSubject {
    std::string name_ = "foo";

   public:
    const std::string& name() const override { return name_; }
    std::optional<double> measure(const NetRow&, double) override { throw std::runtime_error("isend returned 3"); }
  };
  std::vector<std::unique_ptr<NetSubject>> subjects;
  subjects.push_back(std::make_unique<Failing>());
  EXPECT_EQ(error_message([&] { run_net_bench(subjects, {.rows = {net_rows({1 << 20}).front()}}); }),
            "foo, row bw-1M: isend returned 3");
}

TEST(NetRows, DependOnTheSizes) {
  EXPECT_THAT(names_of(net_rows({8})), ElementsAre("lat-8", "lat-p99-8", "rate-8", "rate-group8-8"));
  EXPECT_THAT(names_of(net_rows({1 << 20, 8 << 20})),
              ElementsAre("bw-1M", "bw-8M", "bw-both-1M", "bw-4x1M", "bw-16x1M", "cpu-1M"));
  EXPECT_THAT(names_of(net_rows({4096})), testing::IsSupersetOf({"bw-4K", "lat-4K", "rate-4K"}));
}

TEST(NetRows, OneSidedRowsDependOnTheSizes) {
  EXPECT_THAT(names_of(rma_rows({8, 1 << 20})), ElementsAre("put-1M", "get-1M", "put-signal-8", "get-lat-8", "signal"));
}

TEST(ParseSizes, SortsSizesAndRefusesInvalidText) {
  EXPECT_THAT(parse_sizes("1M,8,64K,8"), ElementsAre(8u, 65536u, 1048576u));
  EXPECT_THAT(parse_sizes("1G"), ElementsAre(1u << 30));
  for (const std::string text :
       {"", "8,", ",8", "0", "2G", "8q", "8KB", "-1", "99999999999999999999", "18014398509481984K"})
    EXPECT_EQ(refusal_of(text), "--sizes \"" + text + "\": expected sizes from 1 to 1G in bytes, such as 8,64K,1M");
}

// A run on one machine: perftest and a plugin with these rounds of one row, and other rows with a noise of 1 %.
NetRecord run_of(std::vector<double> rounds, double perftest = 100, const std::string& unit = kBandwidthUnit) {
  NetRecord record{.kernel = "Linux 6.1", .cpu = "2 × Xeon", .topology = "pair", .seconds = 1, .rows = {}};
  const auto add = [&](const char* name, const char* subject, std::vector<double> all) {
    const double value = all.at(all.size() / 2);
    record.rows.push_back({.name = name, .subject = subject, .value = value, .unit = unit, .rounds = std::move(all)});
  };
  add("bw-1M", kPerftest, std::vector<double>(rounds.size(), perftest));
  add("bw-1M", "mesh", std::move(rounds));
  for (const char* const other : {"bw-4K", "bw-64K", "bw-8M"}) add(other, "mesh", {99, 100, 101});
  return record;
}

NetChange::Verdict verdict_of(const NetRecord& before, const NetRecord& now) {
  return compare(before, now).at(1).verdict;
}

TEST(NetComparison, FindsChangesBeyondNoise) {
  using enum NetChange::Verdict;
  const NetRecord before = run_of({50, 51, 52});
  EXPECT_EQ(verdict_of(before, run_of({40, 41, 42})), kSlower);
  EXPECT_EQ(verdict_of(before, run_of({60, 61, 62})), kFaster);
  EXPECT_EQ(verdict_of(run_of({50, 51, 52}, 1, "µs"), run_of({60, 61, 62}, 1, "µs")), kSlower) << "less is better";
  EXPECT_FALSE(any_slower(compare(before, before)));
  EXPECT_TRUE(any_slower(compare(before, run_of({40, 41, 42}))));
}

TEST(NetComparison, AcceptsNoise) {
  using enum NetChange::Verdict;
  EXPECT_EQ(verdict_of(run_of({50, 51, 52}), run_of({49, 49, 49})), kSame) << "less than 5 %";
  EXPECT_EQ(verdict_of(run_of({40, 50, 60}), run_of({35, 39, 39})), kSame) << "three standard deviations";
  EXPECT_EQ(verdict_of(run_of({39, 60, 60}), run_of({40, 40, 40})), kSame) << "one round was as slow before";
  EXPECT_EQ(verdict_of(run_of({50, 51, 52}), run_of({40, 41, 42}, 80)), kSame) << "perftest is as much slower";
  EXPECT_EQ(verdict_of(run_of({50, 51, 52}), run_of({50, 51, 52}, 200)), kSame) << "only perftest is faster";
}

TEST(NetComparison, NamesTheChangesAndTheirNoise) {
  EXPECT_EQ(changes_text(compare(run_of({50, 51, 52}), run_of({40, 41, 42})), "old.json"),
            "compared with old.json:\n"
            "slower bw-1M          mesh            51.0 →   41.0 Gbit/s  -20 % (noise: 14 %)\n"
            "5 figures: 1 slower, 0 faster, 4 within noise\n");
}

std::string incomparable(const NetRecord& before, std::uint64_t size = 1 << 20) {
  return error_message([&] { require_comparable(before, run_of({50, 51, 52}), net_rows({size}), "old.json"); });
}

TEST(NetComparison, RefusesOtherMachinesAndParameters) {
  EXPECT_NO_THROW(require_comparable(run_of({1, 2, 3}), run_of({50, 51, 52}), net_rows({1 << 20}), "old.json"));
  NetRecord other = run_of({50, 51, 52});
  other.cpu = "8 × Xeon";
  other.seconds = 2;
  EXPECT_EQ(incomparable(other),
            "--against old.json: cannot be compared: cpu \"8 × Xeon\", here \"2 × Xeon\"; seconds \"2\", here \"1\"");
  EXPECT_EQ(incomparable(run_of({50, 51})),
            "--against old.json: cannot be compared: bw-1M has 2 rounds, and 3 are needed");
  EXPECT_EQ(incomparable(run_of({50, 51, 52}), 8), "--against old.json: cannot be compared: it has no row of this run");
}

TEST(NetComparison, ReadsItsOwnFilesOnly) {
  const ScratchFolder folder;
  const std::string path = folder / "old.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_message([&] { read_net_record(path); });
  };
  std::ofstream(path) << net_json(run_of({50, 51, 52}));
  EXPECT_EQ(net_json(read_net_record(path)), net_json(run_of({50, 51, 52})));
  const std::string refusal = "--against " + path + ": not a file of bench net --json: ";
  EXPECT_THAT(read("no JSON"), StartsWith(refusal));
  EXPECT_EQ(read(R"({"schema": 1, "runs": []})"), refusal + "tool is missing");
  NetRecord later = run_of({50, 51, 52});
  later.schema = 2;
  EXPECT_EQ(read(net_json(later)), refusal + "schema 2, and this plugfest reads 1");
}

TEST(NetTable, PlotHasALineForEachSubject) {
  NetResult result{.row = net_rows({1 << 20}).front(), .reference = "perftest", .figures = {}};
  result.figures = {{"perftest", {8}, 8, {}}, {"a<b", {7}, 7, 0.875}};
  const std::string svg = net_plot({result});
  EXPECT_THAT(svg, HasSubstr("perftest"));
  EXPECT_THAT(svg, testing::Not(HasSubstr("a<b")));  // a plugin chooses its name
}

}  // namespace
}  // namespace plugfest::bench
