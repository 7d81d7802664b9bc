#include "fabric/roce/port/packet_batch.h"

#include <cstring>

#include "fabric/roce/wire/icrc.h"
#include "fabric/system/fault_guard.h"

namespace plugfest::roce {

bool PacketBatch::add(const Path& path, const Headers& headers, std::span<const iovec> payload,
                      std::size_t payload_bytes) {
  const std::size_t pad = (4 - payload_bytes % 4) % 4;
  const std::size_t head = header_bytes(headers.transport, headers.operation);
  const std::size_t packet_bytes = head + payload_bytes + pad + kIcrcBytes;
  const FaultDecision decision = transmit_path_.next_fault();
  begun_ = unreadable_ = false;
  if (decision.loss) {
    ++counters_.fault_drops;
    ++counters_.sent_packets;
    counters_.sent_bytes += packet_bytes;
    return true;
  }
  const bool fits = decision.none() && has_room_for(path, packet_bytes, payload.size());
  if (count_ > 0 && !fits && !flush()) return false;

  std::byte* const header = between_.data() + between_bytes_;
  encode(headers, header);
  write_pad(header, pad);
  const Flow flow = {path.local, path.remote, path.socket->port(), kRoceUdpPort};
  std::uint32_t icrc = start_icrc(flow, static_cast<std::uint16_t>(count_), packet_bytes, header, head);
  for (const iovec& piece : payload) {
    const auto* const bytes = static_cast<const std::byte*>(piece.iov_base);
    unreadable_ = !guarded({bytes, piece.iov_len}, [&] { icrc = crc32(icrc, bytes, piece.iov_len); });
    if (unreadable_) return false;
  }
  if (count_ == 0) {
    begun_ = true;
    path_ = &path;
    segment_bytes_ = packet_bytes;
  }
  closed_ = packet_bytes < segment_bytes_;
  append(head);
  for (const iovec& piece : payload) parts_[parts_count_++] = piece;
  std::byte* const trailer = between_.data() + between_bytes_;
  std::memset(trailer, 0, pad);
  icrc = crc32(icrc, trailer, pad);
  for (std::size_t i = 0; i < kIcrcBytes; ++i) trailer[pad + i] = static_cast<std::byte>(icrc >> (8 * i));
  append(pad + kIcrcBytes);
  ++count_;
  total_bytes_ += packet_bytes;
  if (!decision.none()) {
    transmit_path_.send_with_faults(collected(), decision);
    ++counters_.sent_packets;
    counters_.sent_bytes += packet_bytes;
    clear();
  }
  return true;
}

bool PacketBatch::copy(iovec& payload) {
  if (payload.iov_len == 0) return true;  // a READ of 0 bytes
  constexpr std::size_t kRingBytes = 2 * kMaxBytes;
  if (!copies_) copies_ = std::make_unique_for_overwrite<std::byte[]>(kRingBytes);
  if (copied_bytes_ + payload.iov_len > kRingBytes) copied_bytes_ = 0;
  std::byte* const copy = copies_.get() + copied_bytes_;
  const auto* const bytes = static_cast<const std::byte*>(payload.iov_base);
  unreadable_ = !guarded({bytes, payload.iov_len}, [&] { std::memcpy(copy, bytes, payload.iov_len); });
  if (unreadable_) return false;
  copied_bytes_ += payload.iov_len;
  payload.iov_base = copy;
  return true;
}

void PacketBatch::append(std::size_t bytes) {
  std::byte* const end = between_.data() + between_bytes_;
  between_bytes_ += bytes;
  if (parts_count_ > 0) {
    iovec& last = parts_[parts_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == end) {
      last.iov_len += bytes;
      return;
    }
  }
  parts_[parts_count_++] = {end, bytes};
}

bool PacketBatch::flush() {
  if (count_ == 0) return true;
  const bool sent = transmit_path_.send(collected());
  if (sent) {
    counters_.sent_packets += count_;
    counters_.sent_bytes += total_bytes_;
  }
  clear();
  return sent;
}

void PacketBatch::clear() {
  count_ = total_bytes_ = parts_count_ = between_bytes_ = 0;
  closed_ = false;
}

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
