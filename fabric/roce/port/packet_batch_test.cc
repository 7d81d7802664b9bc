#include "fabric/roce/port/packet_batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace plugfest::roce {
namespace {

constexpr std::size_t kPayload = 256;
constexpr std::size_t kSegment = kBthBytes + kPayload + kIcrcBytes;

// The bytes of a batch; no two packets are equal.
std::vector<std::byte> batch_of(std::size_t length) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

// Fills the parts of a receive call as the kernel does.
void fill_parts(std::span<iovec> parts, std::span<const std::byte> bytes) {
  for (const iovec& part : parts) {
    const std::size_t length = std::min(part.iov_len, bytes.size());
    std::memcpy(part.iov_base, bytes.data(), length);
    bytes = bytes.subspan(length);
  }
  EXPECT_TRUE(bytes.empty());
}

class Direct : public testing::Test {
 protected:
  std::span<const std::byte> at(std::size_t offset, std::size_t length) const {
    return std::span(batch).subspan(offset, length);
  }
  static bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  void receive(std::size_t segment_bytes) {
    fill_parts(direct.prepare(segment_bytes, {memory.data(), 3}, buffer.data()), batch);
    direct.set_length(batch.size());
  }

  std::vector<std::byte> batch = batch_of(4 * kSegment + 100);
  std::vector<std::byte> memory = std::vector<std::byte>(3 * kPayload);
  std::vector<std::byte> buffer = std::vector<std::byte>(UdpPort::kReceiveBytes);
  DirectBatch direct;
};

TEST_F(Direct, PayloadsGoToTheirPlacementAndHeadersToTheBatch) {
  receive(kSegment);
  ASSERT_EQ(direct.packets_in_place(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same(direct.bth(i), at(i * kSegment, kBthBytes)));
    EXPECT_TRUE(same(direct.payload(i), at(i * kSegment + kBthBytes, kPayload)));
    EXPECT_EQ(direct.payload(i).data(), memory.data() + i * kPayload);
    EXPECT_TRUE(same(direct.icrc(i), at((i + 1) * kSegment - kIcrcBytes, kIcrcBytes)));
  }
}

TEST_F(Direct, GatherRestoresPacketsInTheBuffer) {
  receive(kSegment);
  for (std::size_t first = 0; first <= 3; ++first)
    EXPECT_TRUE(same(direct.gather(first), at(first * kSegment, batch.size() - first * kSegment))) << first;
}

TEST_F(Direct, CountsOnlyReceivedPacketsInPlace) {
  batch.resize(2 * kSegment);
  receive(kSegment);
  EXPECT_EQ(direct.packets_in_place(), 2u);
  EXPECT_TRUE(direct.gather(2).empty());
}

TEST_F(Direct, GathersPacketsOfAnotherLength) {
  for (const std::size_t length : {kBthBytes - 1, kSegment / 2, kSegment + 7, batch.size()}) {
    batch.resize(length);
    receive(kSegment);
    EXPECT_TRUE(same(direct.gather(0), batch)) << length;
    batch = batch_of(4 * kSegment + 100);
  }
}

}  // namespace
}  // namespace plugfest::roce
