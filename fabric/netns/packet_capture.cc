// A packet socket with a filter, and the pcapng format.
#include "fabric/netns/packet_capture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <stdexcept>

namespace plugfest::netns {
namespace {

constexpr int kReceiveBufferBytes = 64 << 20;
constexpr std::size_t kLargestFrame = 65536 + 64;
constexpr std::uint32_t kRocePort = 4791;
constexpr int kStopCheckMs = 100;

[[noreturn]] void throw_failed(const char* what) {
  throw std::runtime_error(fmt::format("capture: {}: {}", what, std::strerror(errno)));
}

// UDP to port 4791 over IPv4 without fragments, or over IPv6 without extension headers.
void attach_filter(int socket) {
  static sock_filter program[] = {
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 12},               // EtherType
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 7, ETHERTYPE_IP},    //
      {BPF_LD | BPF_B | BPF_ABS, 0, 0, 23},               // protocol
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 11, IPPROTO_UDP},    //
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 20},               // fragment offset
      {BPF_JMP | BPF_JSET | BPF_K, 9, 0, 0x1fff},         //
      {BPF_LDX | BPF_B | BPF_MSH, 0, 0, 14},              // IP header's length
      {BPF_LD | BPF_H | BPF_IND, 0, 0, 16},               // destination port
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 6, kRocePort},       //
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 5, ETHERTYPE_IPV6},  //
      {BPF_LD | BPF_B | BPF_ABS, 0, 0, 20},               // next header
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, IPPROTO_UDP},     //
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 56},               // destination port
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, kRocePort},       //
      {BPF_RET | BPF_K, 0, 0, kLargestFrame},             // all of it
      {BPF_RET | BPF_K, 0, 0, 0},                         // none
  };
  const sock_fprog filter = {std::size(program), program};
  if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0) throw_failed("filter");
}

int open_packet_socket() {
  // Nothing arrives until it is bound, by when the filter is there.
  const int made = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) throw_failed("packet socket");
  // Forced: beyond the limit for ordinary sockets. Without the right to force, the limit itself.
  if (setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof(int)) != 0)
    setsockopt(made, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(int));
  const int on = 1;
  setsockopt(made, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
  attach_filter(made);
  sockaddr_ll all = {};
  all.sll_family = AF_PACKET;
  all.sll_protocol = htons(ETH_P_ALL);
  if (bind(made, reinterpret_cast<const sockaddr*>(&all), sizeof(all)) != 0) throw_failed("packet socket");
  return made;
}

// Blocks of a pcapng file, collected and written.
class Blocks {
 public:
  explicit Blocks(int fd) : fd_(fd) {}

  // Section header: this machine's byte order, version 1.0, of unknown length.
  void section() {
    block(0x0a0d0d0a, [&] { put32(0x1a2b3c4d), put16(1), put16(0), put32(~0u), put32(~0u); });
  }

  void interface(const std::string& name) {
    block(1, [&] {
      put16(1), put16(0), put32(kLargestFrame);  // Ethernet
      option(2, name.data(), name.size());       // if_name
      constexpr char kNanoseconds = 9;
      option(9, &kNanoseconds, 1);  // if_tsresol
      put32(0);                     // end of options
    });
  }

  void packet(std::uint32_t interface, std::uint64_t time_ns, const std::uint8_t* frame, std::size_t length) {
    block(6, [&] {
      put32(interface), put32(static_cast<std::uint32_t>(time_ns >> 32)), put32(static_cast<std::uint32_t>(time_ns));
      put32(static_cast<std::uint32_t>(length)), put32(static_cast<std::uint32_t>(length));
      put(frame, length);
      pad();
    });
  }

  std::size_t size() const { return bytes_.size(); }

  // False if the reader is gone.
  bool flush() {
    for (std::size_t written = 0; written < bytes_.size();) {
      const ssize_t n = ::write(fd_, bytes_.data() + written, bytes_.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EPIPE) return false;
      if (n < 0) throw std::runtime_error(fmt::format("cannot write: {}", std::strerror(errno)));
      written += static_cast<std::size_t>(n);
    }
    bytes_.clear();
    return true;
  }

 private:
  template <typename Body>
  void block(std::uint32_t type, const Body& body) {
    const std::size_t start = bytes_.size();
    put32(type), put32(0);
    body();
    const auto length = static_cast<std::uint32_t>(bytes_.size() - start + 4);
    put32(length);
    std::memcpy(bytes_.data() + start + 4, &length, 4);
  }
  void option(std::uint16_t code, const char* value, std::size_t length) {
    put16(code), put16(static_cast<std::uint16_t>(length));
    put(value, length);
    pad();
  }
  void put(const void* data, std::size_t length) {
    const auto* begin = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), begin, begin + length);
  }
  void put16(std::uint16_t value) { put(&value, 2); }
  void put32(std::uint32_t value) { put(&value, 4); }
  void pad() { bytes_.resize((bytes_.size() + 3) / 4 * 4); }

  int fd_;
  std::vector<char> bytes_;
};

std::uint64_t time_of(msghdr& message) {
  timespec time = {};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPNS)
      std::memcpy(&time, CMSG_DATA(header), sizeof(time));
  }
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000u + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

PacketCapture::PacketCapture(Fabric& fabric, const std::string& node) : fabric_(fabric) {
  const topology::Graph& graph = fabric.graph();
  for (const topology::Link& link : graph.links) {
    const auto is_here = [&](const topology::LinkEnd& end) { return graph.node_name(end) == node; };
    if (!is_here(link.ends[0]) && !is_here(link.ends[1])) continue;
    for (const topology::LinkEnd& end : link.ends) ends_.push_back({graph.node_name(end), graph.interface(end).name});
  }
  fabric.call(node, [&] {
    for (const Seen& end : ends_) {
      if (end.node != node) continue;
      interfaces_.emplace_back(static_cast<int>(if_nametoindex(end.interface.c_str())), end.interface);
    }
    socket_ = open_packet_socket();
  });
  set_segmentation(false);
}

PacketCapture::~PacketCapture() {
  close(socket_);
  try {
    set_segmentation(true);
  } catch (const std::exception&) {  // the interface is gone, then
  }
}

void PacketCapture::set_segmentation(bool on) {
  for (const Seen& end : ends_) fabric_.set_udp_segmentation(end.node, end.interface, on);
}

PacketCapture::Count PacketCapture::write(int fd, const std::atomic<bool>& stop) {
  constexpr std::size_t kEnough = 1 << 20;
  Count count;
  Blocks blocks(fd);
  blocks.section();
  for (const auto& [index, name] : interfaces_) blocks.interface(name);
  std::vector<std::uint8_t> frame(kLargestFrame);
  for (bool last = false; blocks.flush() && !last;) {
    last = stop;  // what has arrived until then is still written
    pollfd arrival = {socket_, POLLIN, 0};
    poll(&arrival, 1, last ? 0 : kStopCheckMs);
    while (blocks.size() < kEnough) {
      sockaddr_ll from = {};
      iovec data = {frame.data(), frame.size()};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
      msghdr message = {&from, sizeof(from), &data, 1, control, sizeof(control), 0};
      const ssize_t length = recvmsg(socket_, &message, 0);
      if (length < 0) break;
      const auto interface = std::find_if(interfaces_.begin(), interfaces_.end(),
                                          [&](const auto& one) { return one.first == from.sll_ifindex; });
      if (interface == interfaces_.end()) continue;  // oob0, lo
      blocks.packet(static_cast<std::uint32_t>(interface - interfaces_.begin()), time_of(message), frame.data(),
                    static_cast<std::size_t>(length));
      ++count.written;
    }
  }
  tpacket_stats statistics = {};
  socklen_t size = sizeof(statistics);
  if (getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) == 0) count.dropped = statistics.tp_drops;
  return count;
}

}  // namespace plugfest::netns
