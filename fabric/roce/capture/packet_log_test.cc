// Captures are written whole, beside those of other processes, and never over something else.
#include "fabric/roce/capture/packet_log.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "fabric/roce/capture/log_choice.h"
#include "fabric/system/testing/scratch_folder.h"

namespace plugfest::roce {
namespace {

class Log : public testing::Test {
 protected:
  Log() { unsetenv("PLUGFEST_ROCE_PCAP"); }

  // The types of the blocks in the file, which must follow each other without a gap.
  std::vector<std::uint32_t> block_types() const {
    std::ifstream stream(file_, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    const std::string bytes = text.str();
    std::vector<std::uint32_t> types;
    for (std::size_t offset = 0; offset < bytes.size();) {
      std::uint32_t front[2], back = 0;
      if (offset + sizeof(front) > bytes.size()) throw std::runtime_error("cut off");
      std::memcpy(front, bytes.data() + offset, sizeof(front));
      offset += front[1];
      if (offset > bytes.size()) throw std::runtime_error("cut off");
      std::memcpy(&back, bytes.data() + offset - sizeof(back), sizeof(back));
      EXPECT_EQ(front[1], back);
      EXPECT_EQ(front[1] % 4, 0u);
      types.push_back(front[0]);
    }
    return types;
  }

  static WireHeaders headers() {
    in_addr a = {}, b = {};
    inet_pton(AF_INET, "10.0.0.1", &a);
    inet_pton(AF_INET, "10.0.0.2", &b);
    return {.source = Address(a), .destination = Address(b), .source_port = 0xc001, .destination_port = 4791};
  }

  ScratchFolder folder_;
  const std::filesystem::path file_ = folder_ / "log.pcapng";
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(100);
};

constexpr std::uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kPacket = 6;

TEST_F(Log, CutsABatchIntoItsPackets) {
  PacketLog log(file_, "roce_eth0");
  std::byte bytes[250] = {};
  const iovec parts[] = {{bytes, 30}, {bytes + 30, 100}, {bytes + 130, 120}};
  log.add_departures(headers(), parts, 100);
  EXPECT_TRUE(log.pending());
  EXPECT_TRUE(block_types().empty());
  log.write_out();
  EXPECT_EQ(block_types(), (std::vector<std::uint32_t>{kSection, kInterface, kPacket, kPacket, kPacket}));
}

TEST_F(Log, OfTwoProcessesStandsInOneFileInWholeSections) {
  {
    PacketLog one(file_, "roce_eth0"), other(file_, "roce_eth1");
    one.add_arrival(headers(), bytes_);
    other.add_arrival(headers(), bytes_);
    one.add_arrival(headers(), bytes_);
  }
  EXPECT_EQ(block_types(),
            (std::vector<std::uint32_t>{kSection, kInterface, kPacket, kSection, kInterface, kPacket, kPacket}));
}

TEST_F(Log, LeavesOtherFilesAlone) {
  std::ofstream(file_) << "somebody's work";
  try {
    PacketLog log(file_, "roce_eth0");
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), file_.string() + ": is there already and no pcapng file: remove it, or name another");
  }
  try {
    PacketLog log(folder_ / "absent" / "log", "roce_eth0");
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(),
              (folder_ / "absent" / "log").string() + ": packets cannot be written there: No such file or directory");
  }
}

TEST_F(Log, IsChosenByTheDevicesFileUnlessTheEnvironmentNamesOne) {
  LogChoice choice(folder_);
  EXPECT_TRUE(choice.file().empty());
  EXPECT_FALSE(choice.look());
  set_device_log(folder_, file_);
  EXPECT_TRUE(choice.look());
  EXPECT_EQ(choice.file(), file_);
  set_device_log(folder_, {});
  EXPECT_TRUE(choice.look());
  EXPECT_TRUE(choice.file().empty());
  setenv("PLUGFEST_ROCE_PCAP", "other.pcapng", 1);
  EXPECT_EQ(LogChoice(folder_).file(), "other.pcapng");
}

}  // namespace
}  // namespace plugfest::roce
