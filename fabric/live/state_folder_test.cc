#include "fabric/live/state_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fabric/system/testing.h"

namespace plugfest::live {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class StateFolderTest : public ::testing::Test {
 protected:
  StateFolderTest() { setenv("XDG_RUNTIME_DIR", scratch_.path().c_str(), 1); }
  ~StateFolderTest() override { unsetenv("XDG_RUNTIME_DIR"); }

  static Record record_of(const std::string& name) {
    Record record;
    record.name = name;
    record.topology = "pair";
    record.keeper = getpid();
    return record;
  }

  const ScratchFolder scratch_;
};

TEST_F(StateFolderTest, RefusesNamesThatAreNoFileNames) {
  EXPECT_NO_THROW(check_name("fat-tree:4,delay=1us"));
  for (const std::string name : {"", ".", "..", "a/b", "-x", "a b", "a\n"})
    EXPECT_THAT(error_message([&] { check_name(name); }), StartsWith("invalid fabric name \"")) << name;
  EXPECT_NE(error_message([] { check_name(std::string(65, 'a')); }), "no error");
}

TEST_F(StateFolderTest, FindsAFabricWhileItsNameIsClaimed) {
  const StateFolder folder;
  Record record = record_of("lab");
  const Claim claim = folder.claim("lab");
  EXPECT_FALSE(claim.stale);
  EXPECT_EQ(folder.find("lab")->problem, kBeingBuilt);
  folder.write(claim, record, "");
  ASSERT_TRUE(folder.find("lab"));
  EXPECT_EQ(folder.find("lab")->keeper, getpid());
  EXPECT_THAT(error_message([&] { folder.claim("lab"); }), StartsWith("fabric lab is up already (pair): run "));
  EXPECT_THAT(folder.names(), ElementsAre("lab"));
}

TEST_F(StateFolderTest, RemovesTheFilesOfAKilledKeeper) {
  const StateFolder folder;
  Record record = record_of("lab");
  folder.write(folder.claim("lab"), record, "topology");  // the lock ends with the claim
  EXPECT_TRUE(std::filesystem::exists(record.specification));
  std::optional<Record> stale;
  EXPECT_FALSE(folder.find("lab", &stale));
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->topology, "pair");
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

TEST_F(StateFolderTest, ClaimsTheNameOfAKilledKeeperAndReturnsItsRecord) {
  const StateFolder folder;
  Record record = record_of("lab");
  folder.write(folder.claim("lab"), record, "");
  const Claim claim = folder.claim("lab");
  ASSERT_TRUE(claim.stale);
  EXPECT_EQ(claim.stale->topology, "pair");
}

TEST_F(StateFolderTest, DoesNotTakeAnotherProcessThatExaminesARecordForItsKeeper) {
  const StateFolder folder;
  Record record = record_of("lab");
  folder.write(folder.claim("lab"), record, "");
  Descriptor examiner(open((folder.path() + "/lab.fabric").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(examiner.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(folder.find("lab"));
  std::thread claimer([&] { EXPECT_TRUE(folder.claim("lab").stale); });
  examiner.close();
  claimer.join();
}

TEST_F(StateFolderTest, SaysThatARecordIsDamaged) {
  const StateFolder folder;
  const Claim claim = folder.claim("lab");
  std::ofstream(folder.path() + "/lab.fabric") << "{";
  EXPECT_EQ(folder.find("lab")->problem, "its record is damaged");
}

TEST_F(StateFolderTest, IsRefusedIfOtherUsersHaveAccess) {
  const std::string path = scratch_ / "plugfest";
  mkdir(path.c_str(), 0700);
  chmod(path.c_str(), 0750);
  EXPECT_EQ(error_message([] { StateFolder(); }),
            path + ": other users have access: remove it, or set XDG_RUNTIME_DIR to a folder that only you can access");
}

TEST_F(StateFolderTest, IsNotCreatedToLookForFabrics) {
  EXPECT_FALSE(StateFolder::existing());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

}  // namespace
}  // namespace plugfest::live
