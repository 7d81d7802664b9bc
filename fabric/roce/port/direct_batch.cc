// Describes the memory that one receive call fills.
#include "fabric/roce/port/direct_batch.h"

#include <algorithm>
#include <cstring>

namespace plugfest::roce {

std::span<iovec> DirectBatch::prepare(std::size_t segment_bytes, Placement placement, std::byte* buffer) {
  segment_bytes_ = segment_bytes;
  payload_bytes_ = segment_bytes_ - kBthBytes - kIcrcBytes;
  length_ = 0;
  buffer_ = buffer;
  placement_ = placement;
  placement_.packets = std::min({placement.packets, UdpPort::kReceiveBytes / segment_bytes, kMaxPackets});

  std::size_t count = 0;
  parts_[count++] = {between_[0].data() + kIcrcBytes, kBthBytes};
  for (std::size_t packet = 0; packet < placement_.packets; ++packet) {
    const bool last = packet + 1 == placement_.packets;
    parts_[count++] = {placement_.memory + packet * payload_bytes_, payload_bytes_};
    parts_[count++] = {between_[packet + 1].data(), last ? kIcrcBytes : kIcrcBytes + kBthBytes};
  }
  const std::size_t in_place = placement_.packets * segment_bytes_;
  parts_[count++] = {buffer_ + in_place, UdpPort::kReceiveBytes - in_place};
  return {parts_.data(), count};
}

std::span<const std::byte> DirectBatch::gather(std::size_t packet) const {
  std::byte* const start = buffer_ + packet * segment_bytes_;
  std::byte* to = start;
  for (; packet < placement_.packets && packet * segment_bytes_ < length_; ++packet) {
    std::memcpy(to, bth(packet).data(), kBthBytes);
    std::memcpy(to + kBthBytes, payload(packet).data(), payload_bytes_);
    std::memcpy(to + kBthBytes + payload_bytes_, icrc(packet).data(), kIcrcBytes);
    to += segment_bytes_;
  }
  return {start, buffer_ + length_};
}

}  // namespace plugfest::roce
