#include "harness/trace/packets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/pcapng.h"
#include "fabric/system/testing.h"

namespace plugfest::trace {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

class ReadPackets : public testing::Test {
 protected:
  ReadPackets() {
    pcapng::add_section(blocks_);
    pcapng::add_interface(blocks_, "roce_eth0", pcapng::LinkType::kRaw);
  }

  // A packet between 10.0.0.`from` and 10.0.0.`to`. `snap_length`: maximum captured bytes; 0: all.
  void add(int from, int to, roce::Headers headers, pcapng::Direction direction = pcapng::Direction::kOutbound,
           std::size_t payload_bytes = 0, std::uint32_t snap_length = 0) {
    std::vector<std::byte> bytes(28 + roce::kMaxHeaderBytes);
    const std::size_t length = roce::encode(headers, bytes.data() + 28) + payload_bytes + roce::kIcrcBytes;
    bytes.resize(28 + length);
    bytes[0] = std::byte{0x45};
    bytes[9] = std::byte{17};
    bytes[12] = bytes[16] = std::byte{10};
    bytes[15] = static_cast<std::byte>(from);
    bytes[19] = static_cast<std::byte>(to);
    bytes[22] = std::byte{roce::kRoceUdpPort >> 8};
    bytes[23] = std::byte{roce::kRoceUdpPort & 255};
    bytes[24] = static_cast<std::byte>((length + 8) >> 8);
    bytes[25] = static_cast<std::byte>(length + 8);
    const iovec piece = {bytes.data(), bytes.size()};
    pcapng::add_packet(
        blocks_, {.time_ns = time_ns_ += 1000, .direction = direction, .comment = comment_, .snap_length = snap_length},
        {&piece, 1});
  }

  std::string write() const {
    const std::string path = (folder_ / "x.pcapng").string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(blocks_.data()), static_cast<std::streamsize>(blocks_.size()));
    return path;
  }

  // Changes the resolution of the interface's times, which is nanoseconds.
  void set_resolution(std::uint8_t resolution) {
    constexpr std::array kOption = {std::byte{9}, std::byte{0}, std::byte{1}, std::byte{0}};
    const auto found = std::search(blocks_.begin(), blocks_.end(), kOption.begin(), kOption.end());
    ASSERT_NE(found, blocks_.end());
    found[4] = static_cast<std::byte>(resolution);
  }

  std::string refusal() const {
    return error_message([&] { read_packets(write(), 100); });
  }

  static roce::Headers write_only(std::uint32_t psn) {
    roce::Headers headers;
    headers.operation = roce::Operation::kWriteOnly;
    headers.destination = 7;
    headers.psn = roce::Psn(psn);
    return headers;
  }
  static roce::Headers acknowledge(std::uint8_t syndrome) {
    roce::Headers headers;
    headers.syndrome = syndrome;
    return headers;
  }

  std::vector<std::byte> blocks_;
  std::string comment_;  // of the next packets
  std::uint64_t time_ns_ = 1'700'000'000'000'000'000;
  const ScratchFolder folder_;
};

std::vector<std::string> marks(const report::Capture& capture) {
  std::vector<std::string> all;
  for (const report::PacketRecord& packet : capture.packets) all.push_back(packet.what + ": " + packet.mark);
  return all;
}

TEST_F(ReadPackets, MarksRetransmissionsAndNaks) {
  add(1, 2, write_only(0xffffff));
  add(1, 2, write_only(0));
  add(2, 1, acknowledge(roce::kSyndromeNak));
  add(1, 2, write_only(0xffffff));
  add(2, 1, acknowledge(roce::kSyndromeRnr | 12));
  add(1, 2, write_only(1));
  add(2, 1, acknowledge(roce::kSyndromeAck));
  const report::Capture capture = read_packets(write(), 100);
  EXPECT_THAT(marks(capture), ElementsAre("WRITE only: ", "WRITE only: ", "ACK: NAK: PSN sequence error",
                                          "WRITE only: retransmission", "ACK: RNR NAK", "WRITE only: ", "ACK: "));
  EXPECT_EQ(capture.packets[0].from, "10.0.0.1");
  EXPECT_EQ(capture.packets[0].to, "10.0.0.2");
  EXPECT_EQ(capture.packets[0].queue_pair, 7u);
  EXPECT_DOUBLE_EQ(capture.packets[6].time, 6e-6);
}

TEST_F(ReadPackets, MarksRetransmissionsOfXrc) {
  roce::Headers request = write_only(5);
  request.transport = roce::Transport::kExtended;
  add(1, 2, request);
  add(1, 2, request);
  EXPECT_THAT(marks(read_packets(write(), 100)), ElementsAre("WRITE only: ", "WRITE only: retransmission"));
}

TEST_F(ReadPackets, ReturnsWhatBothSidesCapturedOnce) {
  add(1, 2, write_only(1));
  add(1, 2, write_only(1), pcapng::Direction::kInbound);
  add(2, 1, acknowledge(roce::kSyndromeAck), pcapng::Direction::kInbound);
  EXPECT_THAT(marks(read_packets(write(), 100)), ElementsAre("WRITE only: ", "ACK: "));
}

TEST_F(ReadPackets, ReturnsTheSizeOfPacketsWhoseHeadersWereCaptured) {
  constexpr std::uint32_t kHeaders = 20 + 8 + 12 + 16;
  add(1, 2, write_only(1), pcapng::Direction::kOutbound, 1024, kHeaders);
  add(1, 2, write_only(2), pcapng::Direction::kOutbound, 1024, kHeaders - 1);
  const report::Capture capture = read_packets(write(), 100);
  ASSERT_EQ(capture.packets.size(), 1u);
  EXPECT_EQ(capture.packets[0].bytes, 1024u);
}

TEST_F(ReadPackets, ReturnsComments) {
  add(1, 2, write_only(1));
  comment_ = "faults from here: loss=1%";
  add(1, 2, write_only(2));
  CaptureDetails details;
  read_packets(write(), 100, &details);
  EXPECT_EQ(details.first_ns, 1'700'000'000'000'001'000);
  ASSERT_EQ(details.comments.size(), 1u);
  EXPECT_EQ(details.comments[0].time_ns, 1'700'000'000'000'002'000);
  EXPECT_EQ(details.comments[0].from, "10.0.0.1");
  EXPECT_EQ(details.comments[0].text, comment_);
}

TEST_F(ReadPackets, KeepsTheLastPackets) {
  for (std::uint32_t psn = 0; psn < 10; ++psn) add(1, 2, write_only(psn));
  const report::Capture capture = read_packets(write(), 3);
  ASSERT_EQ(capture.packets.size(), 3u);
  EXPECT_EQ(capture.packets[0].psn, 7u);
  EXPECT_EQ(capture.left_out, 7u);
}

TEST_F(ReadPackets, ConvertsTimesOfEachResolution) {
  time_ns_ = 1'700'000'000'000'000;  // a valid time in each of these units
  add(1, 2, write_only(1));
  add(1, 2, write_only(2));
  set_resolution(6);  // microseconds
  EXPECT_DOUBLE_EQ(read_packets(write(), 100).packets[1].time, 1e-3);
  set_resolution(12);  // picoseconds
  EXPECT_DOUBLE_EQ(read_packets(write(), 100).packets[1].time, 1e-9);
  set_resolution(128 + 40);  // 2^-40 seconds, rounded to nanoseconds
  EXPECT_DOUBLE_EQ(read_packets(write(), 100).packets[1].time, 1e-9);
  set_resolution(128 + 127);
  EXPECT_DOUBLE_EQ(read_packets(write(), 100).packets[1].time, 0);
  for (const std::uint8_t too_coarse : {std::uint8_t{0}, std::uint8_t{128}}) {
    set_resolution(too_coarse);
    EXPECT_THAT(refusal(), EndsWith(": a packet with an impossible time"));
  }
}

TEST_F(ReadPackets, RefusesDamagedFiles) {
  add(1, 2, write_only(1));
  const std::vector<std::byte> good = blocks_;
  blocks_.resize(blocks_.size() - 4);
  EXPECT_THAT(refusal(), EndsWith(": a block of an impossible length"));
  blocks_.resize(6);
  EXPECT_THAT(refusal(), EndsWith(": offset 0: ends in the middle of a block"));
  blocks_ = std::vector<std::byte>(64);
  EXPECT_THAT(refusal(), EndsWith(": offset 0: not a pcapng file"));
  // Any truncation gives an error or fewer packets.
  for (std::size_t length = 0; length < good.size(); ++length) {
    blocks_.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    refusal();
  }
  EXPECT_THROW(read_packets("/nowhere.pcapng", 1), std::runtime_error);
}

}  // namespace
}  // namespace plugfest::trace
