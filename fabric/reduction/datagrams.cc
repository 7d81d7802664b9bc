#include "fabric/reduction/datagrams.h"

#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace plugfest::reduction {
namespace {

constexpr std::size_t kMaxRunBytes = 65000;  // less than the largest IPv4 packet with its headers

using SegmentBytes = std::uint16_t;
struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(sizeof(SegmentBytes))> bytes = {};
};

// How many of the first datagrams one message can carry.
std::size_t run_of(std::span<const Datagram> datagrams) {
  const Datagram& first = datagrams.front();
  std::size_t bytes = first.bytes.size();
  std::size_t count = 1;
  for (; count < datagrams.size(); ++count) {
    const Datagram& next = datagrams[count];
    bytes += next.bytes.size();
    if (next.to != first.to || next.bytes.size() > first.bytes.size() || bytes > kMaxRunBytes) break;
    if (next.bytes.size() < first.bytes.size()) return count + 1;
  }
  return count;
}

void set_segment_bytes(msghdr& message, Control& control, std::size_t bytes) {
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof(SegmentBytes));
  const auto segment = static_cast<SegmentBytes>(bytes);
  std::memcpy(CMSG_DATA(header), &segment, sizeof(segment));
}

}  // namespace

std::size_t send_datagrams(int socket, std::span<const Datagram> datagrams) {
  std::array<iovec, kMaxDatagrams> buffers;
  std::array<mmsghdr, kMaxDatagrams> messages = {};
  std::array<Control, kMaxDatagrams> controls;
  std::array<std::size_t, kMaxDatagrams> runs = {};
  std::size_t count = 0;  // messages
  for (std::size_t at = 0; at < datagrams.size(); at += runs[count++]) {
    runs[count] = run_of(datagrams.subspan(at));
    for (std::size_t i = at; i < at + runs[count]; ++i)
      buffers[i] = {const_cast<std::byte*>(datagrams[i].bytes.data()), datagrams[i].bytes.size()};
    msghdr& message = messages[count].msg_hdr;
    message.msg_iov = &buffers[at];
    message.msg_iovlen = runs[count];
    message.msg_name = const_cast<sockaddr_in*>(datagrams[at].to);
    message.msg_namelen = datagrams[at].to == nullptr ? 0 : sizeof(sockaddr_in);
    if (runs[count] > 1) set_segment_bytes(message, controls[count], datagrams[at].bytes.size());
  }
  std::size_t done = 0;
  for (std::size_t at = 0; at < count;) {
    const int sent = sendmmsg(socket, &messages[at], static_cast<unsigned>(count - at), MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return done;
    // An error concerns the first message.
    const auto passed = sent > 0 ? static_cast<std::size_t>(sent) : 1;
    for (std::size_t i = 0; i < passed; ++i) done += runs[at++];
  }
  return done;
}

}  // namespace plugfest::reduction
