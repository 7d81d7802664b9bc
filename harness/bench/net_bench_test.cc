// Rows, sizes, medians and ratios of bench net, with subjects that return prepared figures.
#include "harness/bench/net_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/testing.h"
#include "harness/bench/table.h"

namespace plugfest::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  const auto json = nlohmann::json::parse(net_json(results, {}, {0, 0}));
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

TEST(NetRows, ReadSizes) {
  EXPECT_THAT(parse_sizes("1M,8,64K,8"), ElementsAre(8u, 65536u, 1048576u));
  EXPECT_THAT(parse_sizes("1G"), ElementsAre(1u << 30));
  for (const std::string text :
       {"", "8,", ",8", "0", "2G", "8k", "8KB", "-1", "99999999999999999999", "18014398509481984K"})
    EXPECT_EQ(refusal_of(text), "--sizes \"" + text + "\": expected sizes from 1 to 1G in bytes, such as 8,64K,1M");
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
