#include <gmock/gmock.h>

#include <fstream>

#include "fabric/roce/faults/fault_file_guard.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

TEST(FaultPlan, ParsesProbabilities) {
  const FaultPlan plan = parse_faults("loss=1%,duplicate=0.25,reorder=0.5%,corrupt=100%,seed=7");
  EXPECT_DOUBLE_EQ(plan.loss, 0.01);
  EXPECT_DOUBLE_EQ(plan.duplicate, 0.25);
  EXPECT_DOUBLE_EQ(plan.reorder, 0.005);
  EXPECT_DOUBLE_EQ(plan.corrupt, 1);
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_EQ(plan.direction, Direction::kOut);
  EXPECT_TRUE(plan.any());
}

TEST(FaultPlan, ParsesTimesDirectionAndDevice) {
  const FaultPlan plan = parse_faults("device=roce_eth1  direction=in\tdelay=50us, jitter=0.5ms");
  EXPECT_EQ(plan.delay, 50'000);
  EXPECT_EQ(plan.jitter, 500'000);
  EXPECT_TRUE(plan.concerns("roce_eth1", Direction::kIn));
  EXPECT_FALSE(plan.concerns("roce_eth1", Direction::kOut));
  EXPECT_FALSE(plan.concerns("roce_eth0", Direction::kIn));
}

TEST(FaultPlan, AcceptsDropAsAnotherNameOfLoss) { EXPECT_DOUBLE_EQ(parse_faults("drop=1%").loss, 0.01); }

TEST(FaultPlan, ParsesEmptyTextAsNoFaults) { EXPECT_FALSE(parse_faults("").any()); }

TEST(FaultPlan, ReportsTheFieldAndTheExpectedFormat) {
  const auto error = [](const char* text) { return error_message([&] { parse_faults(text); }); };
  EXPECT_EQ(error("loss=1%,lose=2%"),
            "\"lose=2%\": unknown: expected loss=, duplicate=, reorder=, corrupt=, delay=, jitter=, seed=, "
            "direction= or device=");
  EXPECT_EQ(error("loss=2x"), "\"loss=2x\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  EXPECT_EQ(error("delay=50"), "\"delay=50\": expected a time from 0us to 10s, as in 50us");
  EXPECT_EQ(error("direction=up"), "\"direction=up\": expected out, in or both");
  EXPECT_EQ(error("seed=1.5"), "\"seed=1.5\": expected a whole number");
  for (const char* text : {"loss", "loss=", "loss=x", "loss=101%", "loss=-1%", "loss=1", "loss=1.0", "loss=nan",
                           "loss=1%%", "delay=-1us", "delay=11s", "delay=infs", "jitter=", "seed=", "seed=-1", "=1"})
    EXPECT_TRUE(error(text).starts_with("\"" + std::string(text) + "\": ")) << text << ": " << error(text);
}

TEST(FaultPlan, FormatsAndParsesToTheSamePlan) {
  EXPECT_EQ(text_of(parse_faults("loss=1%,delay=1500us,seed=7")), "loss=0.01,delay=1500us,seed=7");
  for (const char* text : {"loss=1%", "loss=100%", "direction=both,loss=33.3%,duplicate=1%,reorder=2%,corrupt=0.1%",
                           "device=roce_eth0,direction=in,delay=1s,jitter=1ns,seed=18446744073709551615", ""})
    EXPECT_EQ(parse_faults(text_of(parse_faults(text))), parse_faults(text)) << text;
}

class FaultFile : public testing::Test {
 protected:
  ScratchFolder folder_;
};

TEST_F(FaultFile, ParsesOnePlanPerLine) {
  const auto plans = parse_fault_file("# a link\n\nloss=1% seed=7 # comment\ndirection=in,delay=5us", "faults");
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].seed, 7u);
  EXPECT_EQ(plans[1].delay, 5000);
}

TEST_F(FaultFile, ReportsFileLineAndField) {
  EXPECT_EQ(error_message([] { parse_fault_file("loss=1%\n\nloss=2x\n", "lab/faults"); }),
            "lab/faults:3: \"loss=2x\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  const std::string absent = folder_ / "absent";
  EXPECT_EQ(error_message([&] { read_fault_file(absent); }), absent + ": cannot read: No such file or directory");
  EXPECT_EQ(error_message([&] { write_fault_file(folder_, {}); }),
            folder_.path().string() + ": cannot write: Is a directory");
}

TEST_F(FaultFile, WritesAndReadsBackWithoutTemporaryFiles) {
  const std::vector<FaultPlan> plans = {parse_faults("loss=1%,seed=3"), parse_faults("direction=in,delay=2ms")};
  write_fault_file(folder_ / "faults", plans);
  EXPECT_EQ(read_fault_file(folder_ / "faults"), plans);
  write_fault_file(folder_ / "faults", {});
  EXPECT_TRUE(read_fault_file(folder_ / "faults").empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(FaultFile, AGuardReplacesARefusedPlanByItsErrorAndByWhatIsActive) {
  const std::filesystem::path file = folder_ / "roce_eth0/faults";
  std::filesystem::create_directory(file.parent_path());
  FaultFileGuard guard;
  guard.add(folder_.path());
  // Whether `written` becomes a comment with `error`, followed by `active`.
  const auto is_refused = [&](const char* written, const std::string& error, const std::string& active,
                              std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    std::ofstream(file) << written;
    return wait_until([&] { return read_file(file) == "# refused: faults:" + error + '\n' + active; }, limit);
  };
  const std::string expected = "expected a fraction below 1 or a percentage, as in 0.01 or 1%";
  EXPECT_TRUE(is_refused("loss=150%\n", "1: \"loss=150%\": " + expected, "")) << read_file(file);
  EXPECT_TRUE(is_refused("delay=5us\nloss=1\n", "2: \"loss=1\": " + expected, "")) << read_file(file);
  // The guard may see a plan only when the next one is written.
  EXPECT_TRUE(wait_until([&] {
    write_fault_file(file, std::vector<FaultPlan>{parse_faults("delay=5us")});
    return is_refused("loss=1\n", "1: \"loss=1\": " + expected, "delay=5us,seed=1\n", std::chrono::seconds(1));
  })) << read_file(file);
}

class FaultSourceTest : public testing::Test {
 protected:
  FaultSourceTest() {
    unsetenv("PLUGFEST_ROCE_FAULTS");
    unsetenv("PLUGFEST_ROCE_FAULTS_FILE");
  }
  ~FaultSourceTest() override {
    unsetenv("PLUGFEST_ROCE_FAULTS");
    unsetenv("PLUGFEST_ROCE_FAULTS_FILE");
  }
  void write(const char* text) const { std::ofstream(folder_ / "faults") << text; }
  static std::string error_of_construction() {
    return error_message([] { FaultSource(std::nullopt, {}); });
  }

  ScratchFolder folder_;
};

TEST_F(FaultSourceTest, WatchesTheFileOfTheDevice) {
  FaultSource source(std::nullopt, folder_);
  EXPECT_TRUE(source.plans().empty());
  EXPECT_FALSE(source.reload());
  write("loss=1%\ndirection=in delay=1ms\n");
  EXPECT_TRUE(source.reload());
  EXPECT_EQ(source.plans().size(), 2u);
  EXPECT_FALSE(source.reload());
  std::filesystem::remove(folder_ / "faults");
  EXPECT_TRUE(source.reload());
  EXPECT_TRUE(source.plans().empty());
}

TEST_F(FaultSourceTest, KeepsThePlansAndReportsOnceIfAFileIsInvalid) {
  write("loss=1%\n");
  FaultSource source(std::nullopt, folder_);
  write("loss=1%\nloss=lots\n");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(source.reload());
  EXPECT_FALSE(source.reload());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plugfest: " + (folder_ / "faults").string() +
                                                        ":2: \"loss=lots\": expected a fraction below 1 or a "
                                                        "percentage, as in 0.01 or 1%; previous faults stay active\n");
  ASSERT_EQ(source.plans().size(), 1u);
  EXPECT_DOUBLE_EQ(source.plans()[0].loss, 0.01);
}

TEST_F(FaultSourceTest, CombinesEnvironmentAndFiles) {
  setenv("PLUGFEST_ROCE_FAULTS", "loss=1%", 1);
  write_fault_file(folder_ / "other", std::vector<FaultPlan>{parse_faults("corrupt=1%")});
  setenv("PLUGFEST_ROCE_FAULTS_FILE", (folder_ / "other").c_str(), 1);
  write("reorder=1%");
  std::ofstream(folder_ / "link") << "delay=1us\n";
  EXPECT_EQ(FaultSource(std::nullopt, folder_).plans().size(), 4u);
  EXPECT_EQ(FaultSource(FaultPlan{}, folder_).plans(), std::vector<FaultPlan>{FaultPlan{}})
      << "a given plan replaces all others";
}

TEST_F(FaultSourceTest, RejectsInvalidEnvironment) {
  setenv("PLUGFEST_ROCE_FAULTS", "loss=2x", 1);
  EXPECT_EQ(error_of_construction(),
            "PLUGFEST_ROCE_FAULTS: \"loss=2x\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  unsetenv("PLUGFEST_ROCE_FAULTS");
  setenv("PLUGFEST_ROCE_FAULTS_FILE", (folder_ / "absent").c_str(), 1);
  EXPECT_THAT(error_of_construction(), testing::EndsWith("/absent: cannot read: No such file or directory"));
}

}  // namespace
}  // namespace plugfest::roce
