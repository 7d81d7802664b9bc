#include "fabric/roce/port/transmit_path.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

constexpr std::uint8_t kDefaultHopLimit = 64;

// How long a delayed batch waits when the kernel has no room.
constexpr Nanoseconds kRoomInterval = 100'000;

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
  const bool ipv4 = path.remote.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (path.hop_limit != kDefaultHopLimit)
    control.add(level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, static_cast<int>(path.hop_limit));
  if (path.traffic_class != 0) control.add(level, ipv4 ? IP_TOS : IPV6_TCLASS, static_cast<int>(path.traffic_class));
}

WireHeaders headers_of(const Path& path) {
  return {.source = path.local,
          .destination = path.remote,
          .source_port = path.socket->port(),
          .destination_port = kRoceUdpPort,
          .traffic_class = path.traffic_class,
          .hop_limit = path.hop_limit};
}

}  // namespace

bool TransmitPath::send_now(const OutgoingBatch& batch) {
  msghdr message = {};
  message.msg_name = const_cast<sockaddr*>(batch.path.to.get());
  message.msg_namelen = batch.path.to.length();
  message.msg_iov = const_cast<iovec*>(batch.parts.data());
  message.msg_iovlen = batch.parts.size();
  Control control;
  if (batch.packets > 1) control.add(IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(batch.segment_bytes));
  add_path_options(control, batch.path);
  control.attach_to(message);
  bool failed = false;
  while (send_message(batch.path.socket->descriptor(), message, MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (!std::exchange(failed, true)) {
      batch.path.socket->read_refusals();  // an earlier packet may have caused the error
      continue;
    }
    return true;  // no route, link down, larger than the MTU: lost like any packet; retransmission recovers it
  }
  if (log_ != nullptr) log_->add_sent(headers_of(batch.path), batch.parts, batch.segment_bytes);
  return true;
}

bool TransmitPath::send_now(const PacketCopy& copy) {
  const iovec part = {const_cast<std::byte*>(copy.bytes.data()), copy.bytes.size()};
  return send_now({.path = copy.path,
                   .parts = {&part, 1},
                   .packets = divide_up(copy.bytes.size(), copy.segment_bytes),
                   .segment_bytes = copy.segment_bytes,
                   .total_bytes = copy.bytes.size()});
}

TransmitPath::PacketCopy TransmitPath::copy_of(const OutgoingBatch& batch) {
  PacketCopy copy = {batch.path, {}, batch.segment_bytes};
  copy.bytes.reserve(batch.total_bytes);
  for (const iovec& part : batch.parts) {
    const auto* bytes = static_cast<const std::byte*>(part.iov_base);
    copy.bytes.insert(copy.bytes.end(), bytes, bytes + part.iov_len);
  }
  return copy;
}

void TransmitPath::send_delayed(PacketCopy copy) {
  const std::size_t packets = divide_up(copy.bytes.size(), copy.segment_bytes);
  if (delayed_.push(std::move(copy), now_ns() + faults_.next_delay())) {
    counters_.delayed_packets += packets;
    arm_(delayed_.due());
  } else {
    counters_.fault_drops += packets;
  }
}

void TransmitPath::send_now_or_delayed(PacketCopy copy) {
  if (delays())
    send_delayed(std::move(copy));
  else
    send_now(copy);
}

bool TransmitPath::send(const OutgoingBatch& batch) {
  if (delays()) {
    send_delayed(copy_of(batch));
  } else if (!send_now(batch)) {
    batch.path.socket->set_blocked();
    return false;
  }
  if (!held_.empty())
    for (PacketCopy& overtaken : held_.release(batch.packets)) send_now_or_delayed(std::move(overtaken));
  return true;
}

void TransmitPath::send_with_faults(const OutgoingBatch& packet, const FaultDecision& decision) {
  std::vector<PacketCopy> overtaken = held_.release(1);
  PacketCopy copy = copy_of(packet);
  if (decision.corrupt) {
    corrupt(copy.bytes, decision.random);
    ++counters_.fault_corruptions;
  }
  if (decision.duplicate) {
    send_now_or_delayed(copy);
    ++counters_.fault_duplicates;
  }
  if (decision.overtaken_by > 0) {
    held_.hold(std::move(copy), decision.overtaken_by);
    ++counters_.fault_reorders;
  } else {
    send_now_or_delayed(std::move(copy));
  }
  for (PacketCopy& earlier : overtaken) send_now_or_delayed(std::move(earlier));
}

void TransmitPath::send_due(Nanoseconds now) {
  while (delayed_.due() <= now) {
    if (!send_now(delayed_.front())) {
      delayed_.postpone_front(now + kRoomInterval);
      break;
    }
    delayed_.pop_front();
  }
}

}  // namespace plugfest::roce
