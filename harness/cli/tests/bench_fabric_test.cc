// plugfest bench fabric as a user types it: figures, files, and what it says when it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class BenchFabric : public testing::Test {
 protected:
  int plugfest(const std::string& arguments) {
    std::FILE* pipe = popen((std::string(PLUGFEST_PROGRAM) + " bench fabric " + arguments + " 2>&1").c_str(), "r");
    char part[4096];
    for (std::size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;) output_.append(part, count);
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  ScratchFolder folder_;
  std::string output_;
};

TEST_F(BenchFabric, GivesFiguresAndAPlot) {
  const fs::path json = folder_ / "r.json", svg = folder_ / "r.svg";
  ASSERT_EQ(plugfest("--k 2,4 --rounds 1 --json " + json.string() + " --plot " + svg.string()), 0) << output_;
  std::ifstream file(json);
  const auto trees = nlohmann::json::parse(file)["trees"];
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_EQ(trees[1]["hosts"], 16);
  EXPECT_EQ(trees[1]["switches"], 20);
  EXPECT_EQ(trees[1]["links"], 48);
  for (const char* of : {"plugfest", "bare"}) {
    EXPECT_GT(trees[1][of]["up_seconds"], 0) << of;
    EXPECT_GT(trees[1][of]["down_seconds"], 0) << of;
  }
  EXPECT_GT(trees[1]["reach_seconds"], 0);
  std::ifstream drawing(svg);
  const std::string text((std::istreambuf_iterator<char>(drawing)), {});
  EXPECT_THAT(text, AllOf(HasSubstr("<svg "), HasSubstr(">bare kernel up</text>"), HasSubstr("</svg>")));
}

TEST_F(BenchFabric, RefusesWhatIsNoTree) {
  EXPECT_EQ(plugfest("--k 3"), 2);
  EXPECT_EQ(output_, "plugfest: topology fat-tree:3: K \"3\": expected an even number\n");
}

TEST_F(BenchFabric, SaysHowToInstallMininet) {
  setenv("PATH", folder_.path().c_str(), 1);
  EXPECT_EQ(plugfest("--k 2 --mininet"), 2);
  EXPECT_EQ(output_,
            "plugfest: bench fabric --mininet needs Mininet: run\n"
            "    sudo apt-get install mininet bridge-utils net-tools\n");
}

}  // namespace
}  // namespace plugfest::cli
