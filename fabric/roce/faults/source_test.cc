// FaultSource: environment variables and watched files.
#include "fabric/roce/faults/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "fabric/roce/faults/file.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

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
  std::string error_of_construction() const {
    try {
      const FaultSource source(std::nullopt, {});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
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
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "plugfest: " + (folder_ / "faults").string() +
                ":2: \"loss=lots\": expected a probability, as in 1% or 0.01; previous faults stay active\n");
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
  EXPECT_EQ(error_of_construction(), "PLUGFEST_ROCE_FAULTS: \"loss=2x\": expected a probability, as in 1% or 0.01");
  unsetenv("PLUGFEST_ROCE_FAULTS");
  setenv("PLUGFEST_ROCE_FAULTS_FILE", (folder_ / "absent").c_str(), 1);
  EXPECT_THAT(error_of_construction(), testing::EndsWith("/absent: cannot be read: No such file or directory"));
}

}  // namespace
}  // namespace plugfest::roce
