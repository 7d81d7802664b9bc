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
    return std::span(batch_).subspan(offset, length);
  }
  static bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  void receive(std::size_t segment_bytes) {
    fill_parts(direct_.prepare(segment_bytes, {memory_.data(), 3}, buffer_.data()), batch_);
    direct_.set_length(batch_.size());
  }

  std::vector<std::byte> batch_ = batch_of(4 * kSegment + 100);
  std::vector<std::byte> memory_ = std::vector<std::byte>(3 * kPayload);
  std::vector<std::byte> buffer_ = std::vector<std::byte>(UdpPort::kReceiveBytes);
  DirectBatch direct_;
};

TEST_F(Direct, PayloadsGoToTheirPlacementAndHeadersToTheBatch) {
  receive(kSegment);
  ASSERT_EQ(direct_.packets_in_place(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same(direct_.bth(i), at(i * kSegment, kBthBytes)));
    EXPECT_TRUE(same(direct_.payload(i), at(i * kSegment + kBthBytes, kPayload)));
    EXPECT_EQ(direct_.payload(i).data(), memory_.data() + i * kPayload);
    EXPECT_TRUE(same(direct_.icrc(i), at((i + 1) * kSegment - kIcrcBytes, kIcrcBytes)));
  }
}

TEST_F(Direct, GatherRestoresPacketsInTheBuffer) {
  receive(kSegment);
  for (std::size_t first = 0; first <= 3; ++first)
    EXPECT_TRUE(same(direct_.gather(first), at(first * kSegment, batch_.size() - first * kSegment))) << first;
}

TEST_F(Direct, CountsOnlyReceivedPacketsInPlace) {
  batch_.resize(2 * kSegment);
  receive(kSegment);
  EXPECT_EQ(direct_.packets_in_place(), 2u);
  EXPECT_TRUE(direct_.gather(2).empty());
}

TEST_F(Direct, GathersPacketsOfAnotherLength) {
  for (const std::size_t length : {kBthBytes - 1, kSegment / 2, kSegment + 7, batch_.size()}) {
    batch_.resize(length);
    receive(kSegment);
    EXPECT_TRUE(same(direct_.gather(0), batch_)) << length;
    batch_ = batch_of(4 * kSegment + 100);
  }
}

}  // namespace
}  // namespace plugfest::roce
