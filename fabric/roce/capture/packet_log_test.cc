#include "fabric/roce/capture/packet_log.h"

#include <arpa/inet.h>

#include <cstring>
#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

class PacketLogTest : public testing::Test {
 protected:
  PacketLogTest() { unsetenv("PLUGFEST_ROCE_PCAP"); }

  // The types of the blocks in the file; checks the block lengths.
  std::vector<std::uint32_t> block_types() const {
    const std::string bytes = read_file(file_);
    std::vector<std::uint32_t> types;
    for (std::size_t offset = 0; offset < bytes.size();) {
      std::uint32_t front[2], back = 0;
      if (offset + sizeof(front) > bytes.size()) throw std::runtime_error("truncated block");
      std::memcpy(front, bytes.data() + offset, sizeof(front));
      offset += front[1];
      if (offset > bytes.size()) throw std::runtime_error("truncated block");
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

TEST_F(PacketLogTest, SplitsABatchIntoPackets) {
  PacketLog log(file_, "roce_eth0");
  std::byte bytes[250] = {};
  const iovec parts[] = {{bytes, 30}, {bytes + 30, 100}, {bytes + 130, 120}};
  log.add_sent(headers(), parts, 100);
  EXPECT_TRUE(log.pending());
  EXPECT_TRUE(block_types().empty());
  log.write_out();
  EXPECT_EQ(block_types(), (std::vector<std::uint32_t>{kSection, kInterface, kPacket, kPacket, kPacket}));
}

TEST_F(PacketLogTest, KeepsTheBeginningsOfPacketsIfTheUserLimitsThem) {
  {
    PacketLog log(file_, "roce_eth0", {.received = false, .snap_length = 64});
    std::byte bytes[100] = {};
    const iovec part = {bytes, sizeof bytes};
    log.add_sent(headers(), {&part, 1}, 100);
  }
  ASSERT_EQ(block_types(), (std::vector<std::uint32_t>{kSection, kInterface, kPacket}));
  const std::string file = read_file(file_);
  // An enhanced packet block: 28 bytes before the packet, 12 bytes of flags, end of options 4, length 4.
  const std::size_t block = file.size() - 28 - 64 - 8 - 4 - 4;
  std::uint32_t lengths[2];
  std::memcpy(lengths, file.data() + block + 20, sizeof lengths);
  EXPECT_EQ(lengths[0], 64u);
  EXPECT_EQ(lengths[1], 128u);
}

TEST_F(PacketLogTest, TheExtentComesFromTheEnvironment) {
  unsetenv("PLUGFEST_ROCE_PCAP_SENT");
  EXPECT_TRUE(LogExtent::from_environment().received);
  setenv("PLUGFEST_ROCE_PCAP_SENT", "many", 1);
  EXPECT_TRUE(LogExtent::from_environment().received);
  setenv("PLUGFEST_ROCE_PCAP_SENT", "128", 1);
  EXPECT_FALSE(LogExtent::from_environment().received);
  EXPECT_EQ(LogExtent::from_environment().snap_length, 128u);
  unsetenv("PLUGFEST_ROCE_PCAP_SENT");
}

TEST_F(PacketLogTest, KeepsSectionsOfTwoProcessesApart) {
  {
    PacketLog log_0(file_, "roce_eth0"), log_1(file_, "roce_eth1");
    log_0.add_received(headers(), bytes_);
    log_1.add_received(headers(), bytes_);
    log_0.add_received(headers(), bytes_);
  }
  EXPECT_EQ(block_types(),
            (std::vector<std::uint32_t>{kSection, kInterface, kPacket, kSection, kInterface, kPacket, kPacket}));
}

TEST_F(PacketLogTest, RefusesFilesThatAreNotCaptures) {
  std::ofstream(file_) << "not a capture";
  EXPECT_EQ(error_message([&] { PacketLog(file_, "roce_eth0"); }),
            file_.string() + ": exists and is not a pcapng file: remove it or choose another name");
  const std::filesystem::path absent = folder_ / "absent" / "log";
  EXPECT_EQ(error_message([&] { PacketLog(absent, "roce_eth0"); }),
            absent.string() + ": cannot write: No such file or directory");
}

TEST_F(PacketLogTest, TargetComesFromTheEnvironmentOrTheFileOfTheDevice) {
  LogTarget target(folder_);
  EXPECT_TRUE(target.file().empty());
  EXPECT_FALSE(target.reload());
  set_device_log(folder_, file_);
  EXPECT_TRUE(target.reload());
  EXPECT_EQ(target.file(), file_);
  set_device_log(folder_, {});
  EXPECT_TRUE(target.reload());
  EXPECT_TRUE(target.file().empty());
  setenv("PLUGFEST_ROCE_PCAP", "other.pcapng", 1);
  EXPECT_EQ(LogTarget(folder_).file(), "other.pcapng");
}

}  // namespace
}  // namespace plugfest::roce
