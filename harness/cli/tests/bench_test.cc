// plugfest bench nic as a user types it: it gives figures, however quick the machine is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/netns/process/host_process.h"
#include "test_paths.h"

namespace plugfest::cli {
namespace {

using testing::HasSubstr;

int plugfest(const std::string& arguments, std::string& output) {
  std::FILE* pipe = popen((std::string(PLUGFEST_PROGRAM) + " " + arguments + " 2>&1").c_str(), "r");
  char part[4096];
  for (std::size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;) output.append(part, count);
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class BenchNic : public testing::Test {
 protected:
  void SetUp() override {
    if (!netns::find_program("ib_write_bw")) GTEST_SKIP() << "needs ib_write_bw, which is not installed";
    const char* folder = std::getenv("TMPDIR");
    json_ = std::string(folder != nullptr ? folder : "/tmp") + "/bench-" + std::to_string(getpid()) + ".json";
  }
  void TearDown() override { std::filesystem::remove(json_); }

  std::string json_;
};

TEST_F(BenchNic, GivesFiguresForTheRowsAskedFor) {
  std::string output;
  ASSERT_EQ(plugfest("bench nic --only write-bw-1024 --only idle-memory --rounds 1 --json " + json_, output), 0)
      << output;
  EXPECT_THAT(output, HasSubstr("write-bw-1024"));
  std::ifstream file(json_);
  const auto json = nlohmann::json::parse(file);
  ASSERT_EQ(json["rows"].size(), 2u) << output;
  EXPECT_EQ(json["rows"][0]["name"], "write-bw-1024");
  EXPECT_GT(json["rows"][0]["figure"], 0);
  EXPECT_GT(json["rows"][0]["reference"], 0);
  EXPECT_GT(json["rows"][0]["ratio"], 0);
  EXPECT_GT(json["rows"][1]["figure"], 0);
}

TEST(BenchCommandLine, NamesTheRowsThatThereAre) {
  std::string output;
  EXPECT_EQ(plugfest("bench nic --only warp-speed", output), 2);
  EXPECT_THAT(output, HasSubstr("plugfest: no row \"warp-speed\": there are write-bw-4096, "));
}

TEST(BenchCommandLine, SaysHowToInstallWhatIsMissing) {
  std::string output;
  setenv("PATH", "/nowhere", 1);
  EXPECT_EQ(plugfest("bench nic --only write-bw-tcp --json /tmp/bench-of-nothing.json", output), 2);
  EXPECT_EQ(output,
            "plugfest: bench nic needs ib_write_bw, iperf3: run\n"
            "    sudo apt-get install --no-install-recommends perftest iperf3\n");
  EXPECT_FALSE(std::filesystem::exists("/tmp/bench-of-nothing.json"));
}

}  // namespace
}  // namespace plugfest::cli
