// Puts packets together and hands them to the kernel.
#include "fabric/roce/packet_batch.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "fabric/roce/icrc.h"

namespace plugfest::roce {

namespace {

constexpr std::uint8_t kDefaultHopLimit = 64;

// Control messages of one send call.
class Control {
 public:
  template <typename Value>
  void add(int level, int type, Value value) {
    auto* header = reinterpret_cast<cmsghdr*>(bytes_ + used_);
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(CMSG_DATA(header), &value, sizeof(value));
    used_ += CMSG_SPACE(sizeof(value));
  }
  void attach_to(msghdr& message) {
    if (used_ == 0) return;
    message.msg_control = bytes_;
    message.msg_controllen = used_;
  }

 private:
  alignas(cmsghdr) char bytes_[3 * CMSG_SPACE(sizeof(int))] = {};
  std::size_t used_ = 0;
};

void add_path_options(Control& control, const Path& path) {
  if (path.hop_limit != kDefaultHopLimit) control.add(IPPROTO_IP, IP_TTL, static_cast<int>(path.hop_limit));
  if (path.traffic_class != 0) control.add(IPPROTO_IP, IP_TOS, static_cast<int>(path.traffic_class));
}

}  // namespace

bool PacketBatch::add(const Path& path, Headers headers, std::span<const iovec> payload, std::size_t payload_bytes) {
  const std::size_t pad = (4 - payload_bytes % 4) % 4;
  const std::size_t head = header_bytes(headers.transport, headers.operation);
  const std::size_t packet_bytes = head + payload_bytes + pad + kIcrcBytes;
  const bool fits = !closed_ && packet_bytes <= segment_bytes_ && count_ < kMaxSegments &&
                    total_bytes_ + packet_bytes <= kMaxBytes && parts_count_ + payload.size() + 2 <= kMaxParts &&
                    faults_ == nullptr && path_ == &path;
  if (count_ > 0 && !fits && !flush()) return false;

  if (count_ == 0) {
    path_ = &path;
    segment_bytes_ = packet_bytes;
  }
  closed_ = packet_bytes < segment_bytes_;
  headers.pad_bytes = static_cast<std::uint8_t>(pad);
  std::byte* const header = headers_[count_].data();
  encode(headers, header);
  const Flow flow = {path.local, path.remote.sin_addr, path.socket->port, kRoceUdpPort};
  std::uint32_t icrc = start_icrc(flow, static_cast<std::uint16_t>(count_), packet_bytes, header, head);
  parts_[parts_count_++] = {header, head};
  for (const iovec& piece : payload) {
    icrc = crc32(icrc, static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    parts_[parts_count_++] = piece;
  }
  std::byte* const trailer = trailers_[count_].data();
  std::memset(trailer, 0, pad);
  icrc = crc32(icrc, trailer, pad);
  for (std::size_t i = 0; i < kIcrcBytes; ++i) trailer[pad + i] = static_cast<std::byte>(icrc >> (8 * i));
  parts_[parts_count_++] = {trailer, pad + kIcrcBytes};
  ++count_;
  total_bytes_ += packet_bytes;
  return true;
}

bool PacketBatch::send(msghdr& message) const {
  message.msg_name = const_cast<sockaddr_in*>(&path_->remote);
  message.msg_namelen = sizeof(path_->remote);
  while (sendmsg(path_->socket->descriptor.get(), &message, MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      path_->socket->blocked = true;
      return false;
    }
    break;  // no route, link down, over the MTU: lost, as on any wire; retransmission deals with it
  }
  return true;
}

bool PacketBatch::flush() {
  if (count_ == 0) return true;
  bool sent = true;
  if (faults_ != nullptr) {
    send_with_faults();
  } else {
    msghdr message = {};
    message.msg_iov = parts_.data();
    message.msg_iovlen = parts_count_;
    Control control;
    if (count_ > 1) control.add(IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(segment_bytes_));
    add_path_options(control, *path_);
    control.attach_to(message);
    sent = send(message);
  }
  if (sent) {
    counters_.sent_packets += count_;
    counters_.sent_bytes += total_bytes_;
  }
  count_ = total_bytes_ = parts_count_ = 0;
  closed_ = false;
  return sent;
}

void PacketBatch::send_with_faults() {
  std::vector<std::byte> packet;
  packet.reserve(total_bytes_);
  for (std::size_t i = 0; i < parts_count_; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts_[i].iov_base);
    packet.insert(packet.end(), bytes, bytes + parts_[i].iov_len);
  }
  // Packets of other queue pairs that were held back go by this one's path: then they come from a stranger, and that
  // is a fault as well.
  counters_.faults_injected += faults_->pass(std::move(packet), [this](const std::vector<std::byte>& bytes) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Control control;
    add_path_options(control, *path_);
    control.attach_to(message);
    send(message);
  });
}

}  // namespace plugfest::roce
