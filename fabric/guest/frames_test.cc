// Data that host and guest exchange: frames, command lines, the initial file system, modules.
#include <gmock/gmock.h>

#include <fstream>

#include "fabric/guest/archive.h"
#include "fabric/guest/modules.h"
#include "fabric/guest/protocol.h"
#include "fabric/system/testing.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;

TEST(GuestFrames, ArriveCompletelyByteByByte) {
  Pipe pipe = make_pipe();
  ASSERT_TRUE(write_frame(pipe.write_end.get(), FrameKind::kFile, std::string("name\0content", 12)));
  ASSERT_TRUE(write_frame(pipe.write_end.get(), FrameKind::kExit, ""));
  pipe.write_end.close();
  FrameReader reader;
  std::vector<Frame> frames;
  for (char byte; read(pipe.read_end.get(), &byte, 1) == 1;) {
    reader.add({&byte, 1});
    while (auto frame = reader.next()) frames.push_back(*frame);
  }
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].kind, FrameKind::kFile);
  EXPECT_EQ(frames[0].content, std::string("name\0content", 12));
  EXPECT_EQ(frames[1].kind, FrameKind::kExit);
}

TEST(GuestFrames, CommandLinesSurviveSerialization) {
  const CommandLine before = {.argv = {"as typed", "", "a b\n"},
                              .program = "/bin/x",
                              .environment = {"A=1", "EMPTY="},
                              .working_directory = "/tmp",
                              .results = {}};
  const CommandLine after = parse_command_line(to_text(before));
  EXPECT_EQ(after.argv, before.argv);
  EXPECT_EQ(after.program, before.program);
  EXPECT_EQ(after.environment, before.environment);
  EXPECT_EQ(after.working_directory, before.working_directory);
  EXPECT_TRUE(after.results.empty());
}

TEST(GuestFrames, ArchiveEntriesAreAlignedToFourBytes) {
  Archive archive;
  archive.add_folder("dev");
  archive.add_file("command", "abc");
  const std::string bytes = archive.finish();
  int headers = 0;
  for (std::size_t at = bytes.find("070701"); at != std::string::npos; at = bytes.find("070701", at + 1)) {
    EXPECT_EQ(at % 4, 0u);
    ++headers;
  }
  EXPECT_EQ(headers, 3);  // two entries and the trailer
  EXPECT_EQ(bytes.size() % 4, 0u);
}

class GuestModules : public testing::Test {
 protected:
  GuestModules() {
    fs::create_directories(folder_ / "kernel" / "net");
    std::ofstream(folder_ / "modules.builtin") << "kernel/fs/fuse.ko\n";
  }

  void add(const std::string& file, const std::string& needs) {
    std::ofstream(folder_ / "kernel" / "net" / file) << std::string("x\0depends=", 10) + needs << '\0';
  }
  std::vector<std::string> order(const ModuleNames& names) const {
    std::vector<std::string> files;
    for (const fs::path& file : modules_in_order(folder_, names)) files.push_back(file.filename().string());
    return files;
  }

 private:
  ScratchFolder folder_;
};

TEST_F(GuestModules, ComeOnceAndAfterTheirDependencies) {
  add("rdma-rxe.ko", "ib_core,udp_tunnel");
  add("ib_core.ko", "");
  add("ib_uverbs.ko", "ib_core");
  add("udp_tunnel.ko", "");
  EXPECT_THAT(order({.required = {"rdma_rxe", "ib_uverbs"}, .optional = {"sch_netem", "ib-core"}}),
              testing::ElementsAre("ib_core.ko", "udp_tunnel.ko", "rdma-rxe.ko", "ib_uverbs.ko"));
}

TEST_F(GuestModules, MayBeBuiltInAndAreNamedIfMissing) {
  EXPECT_THAT(order({.required = {"fuse"}, .optional = {}}), testing::IsEmpty());
  EXPECT_THAT(error_message([&] { order({.required = {"rdma_rxe"}, .optional = {}}); }),
              testing::HasSubstr("no module rdma_rxe"));
}

}  // namespace
}  // namespace plugfest::guest
