#include "harness/report/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "fabric/system/testing.h"

namespace plugfest::report {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  static std::string content(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), {}));
  }

  ScratchFolder folder_;
};

std::string message_of(const std::string& path) {
  return error_message([&] { OutputFile file(path); });
}

TEST_F(OutputFileTest, AppearsAtOnce) {
  OutputFile file(folder_ / "r.json");
  EXPECT_FALSE(fs::exists(folder_ / "r.json"));
  file.write("content");
  EXPECT_EQ(content(folder_ / "r.json"), "content");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, KeepsTheOldFileUntilWrite) {
  std::ofstream(folder_ / "r.json") << "old";
  {
    OutputFile file(folder_ / "r.json");
    EXPECT_EQ(content(folder_ / "r.json"), "old");
  }
  EXPECT_EQ(content(folder_ / "r.json"), "old");
  EXPECT_EQ(files(), 1u) << "the partial file is removed";
}

TEST_F(OutputFileTest, KeepsThePermissionsOfTheOldFile) {
  std::ofstream(folder_ / "r.json") << "old";
  fs::permissions(folder_ / "r.json", fs::perms(0666));
  OutputFile(folder_ / "r.json").write("new");
  EXPECT_EQ(content(folder_ / "r.json"), "new");
  EXPECT_EQ(fs::status(folder_ / "r.json").permissions(), fs::perms(0666));
}

TEST_F(OutputFileTest, AppendsIfAsked) {
  const std::string path = folder_ / "summary.md";
  OutputFile(path, OutputFile::Mode::kAppend).write("first\n");
  OutputFile file(path, OutputFile::Mode::kAppend);
  std::ofstream(path, std::ios::app) << "by another\n";
  file.write("second\n");
  EXPECT_EQ(content(path), "first\nby another\nsecond\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, ChecksThatTheFileCanBeWritten) {
  EXPECT_EQ(message_of(folder_ / "none/r.json"),
            (folder_ / "none/r.json").string() + ": cannot write: No such file or directory");
  EXPECT_EQ(message_of(folder_.path()), folder_.path().string() + ": cannot write: Is a directory");
}

TEST_F(OutputFileTest, FollowsASymbolicLinkAndReplacesItsTarget) {
  fs::create_directory(folder_ / "results");
  fs::create_symlink("results/today.json", folder_ / "r.json");
  for (const char* content_now : {"first", "second"}) {
    OutputFile(folder_ / "r.json").write(content_now);
    EXPECT_TRUE(fs::is_symlink(folder_ / "r.json"));
    EXPECT_EQ(content(folder_ / "results/today.json"), content_now);
  }
}

TEST_F(OutputFileTest, WritesToAnOpenDescriptorWithoutReplacingItsPath) {
  const Descriptor file(open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  for (const char* prefix : {"/dev/fd/", "/proc/self/fd/"}) OutputFile(prefix + std::to_string(file.get())).write("x");
  EXPECT_EQ(content(folder_ / "out"), "xx");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, WritesToStandardOutput) {
  const Descriptor kept(dup(STDOUT_FILENO));
  const Descriptor file(open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  dup2(file.get(), STDOUT_FILENO);
  OutputFile("-").write("x");
  OutputFile("/dev/stdout").write("y");
  dup2(kept.get(), STDOUT_FILENO);
  EXPECT_EQ(content(folder_ / "out"), "xy");
  EXPECT_TRUE(fs::is_symlink("/dev/stdout"));
}

TEST(OutputFile, ReportsAFullDisk) {
  OutputFile file("/dev/full");
  EXPECT_EQ(error_message([&] { file.write("x"); }), "/dev/full: cannot write: No space left on device");
}

}  // namespace
}  // namespace plugfest::report
