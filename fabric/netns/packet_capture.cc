#include "fabric/netns/packet_capture.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>

#include "fabric/system/pcapng.h"

namespace plugfest::netns {
namespace {

constexpr int kReceiveBufferBytes = 64 << 20;
constexpr std::size_t kMaxFrame = 65536 + 64;
constexpr std::uint32_t kRocePort = 4791;
constexpr int kStopCheckMs = 100;

// UDP to port 4791 over IPv4 without fragments, or over IPv6 without extension headers.
void attach_filter(int socket) {
  static sock_filter program[] = {
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 12},               // EtherType
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 7, ETHERTYPE_IP},    //
      {BPF_LD | BPF_B | BPF_ABS, 0, 0, 23},               // protocol
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 11, IPPROTO_UDP},    //
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 20},               // fragment offset
      {BPF_JMP | BPF_JSET | BPF_K, 9, 0, 0x1fff},         //
      {BPF_LDX | BPF_B | BPF_MSH, 0, 0, 14},              // IP header length
      {BPF_LD | BPF_H | BPF_IND, 0, 0, 16},               // destination port
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 6, kRocePort},       //
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 5, ETHERTYPE_IPV6},  //
      {BPF_LD | BPF_B | BPF_ABS, 0, 0, 20},               // next header
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, IPPROTO_UDP},     //
      {BPF_LD | BPF_H | BPF_ABS, 0, 0, 56},               // destination port
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, kRocePort},       //
      {BPF_RET | BPF_K, 0, 0, kMaxFrame},                 // accept
      {BPF_RET | BPF_K, 0, 0, 0},                         // reject
  };
  const sock_fprog filter = {std::size(program), program};
  if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0)
    throw_errno("attach the packet filter of the capture");
}

void reject_packets(int socket) {
  static sock_filter program[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog filter = {std::size(program), program};
  if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0)
    throw_errno("attach the packet filter of the capture");
}

Descriptor open_packet_socket() {
  // Without a protocol the socket receives nothing until bind(), after the filter is attached.
  Descriptor result(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!result) throw_errno("open a packet socket for the capture");
  // SO_RCVBUFFORCE exceeds the limit for ordinary sockets, but needs CAP_NET_ADMIN.
  if (setsockopt(result.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof(int)) != 0)
    setsockopt(result.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(int));
  const int on = 1;
  setsockopt(result.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
  attach_filter(result.get());
  sockaddr_ll all = {};
  all.sll_family = AF_PACKET;
  all.sll_protocol = htons(ETH_P_ALL);
  if (bind(result.get(), reinterpret_cast<const sockaddr*>(&all), sizeof(all)) != 0)
    throw_errno("bind the packet socket of the capture");
  return result;
}

// Writes all of `blocks` and clears it. Returns false if the reader has closed the pipe.
bool flush(int fd, std::vector<std::byte>& blocks) {
  if (!write_all(fd, {reinterpret_cast<const char*>(blocks.data()), blocks.size()})) {
    if (errno == EPIPE) return false;
    throw_errno("write");  // the caller names the file
  }
  blocks.clear();
  return true;
}

std::uint64_t time_of(msghdr& message) {
  timespec time = {};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPNS)
      std::memcpy(&time, CMSG_DATA(header), sizeof(time));
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
    for (const NodeInterface& end : ends_) {
      if (end.node != node) continue;
      interfaces_.emplace_back(static_cast<int>(if_nametoindex(end.interface.c_str())), end.interface);
    }
    socket_ = open_packet_socket();
  });
  set_segmentation(false);
}

PacketCapture::~PacketCapture() {
  try {
    set_segmentation(true);
  } catch (const std::exception&) {  // the interface no longer exists
  }
}

void PacketCapture::set_segmentation(bool on) {
  for (const NodeInterface& end : ends_) fabric_.set_udp_segmentation(end.node, end.interface, on);
}

PacketCapture::Count PacketCapture::write(int fd, const std::atomic<bool>& stop) {
  constexpr std::size_t kFlushBytes = 1 << 20;
  Count count;
  std::vector<std::byte> blocks;
  pcapng::add_section(blocks);
  for (const auto& [index, name] : interfaces_)
    pcapng::add_interface(blocks, name, pcapng::LinkType::kEthernet, kMaxFrame);
  std::vector<std::uint8_t> frame(kMaxFrame);
  bool stopping = false;
  for (bool last = false; flush(fd, blocks) && !last;) {
    if (!stopping && stop) {  // packets that have arrived are still written, however many
      stopping = true;
      reject_packets(socket_.get());
    }
    pollfd event = {socket_.get(), POLLIN, 0};
    last = poll(&event, 1, stopping ? 0 : kStopCheckMs) == 0 && stopping;
    while (blocks.size() < kFlushBytes) {
      sockaddr_ll from = {};
      iovec data = {frame.data(), frame.size()};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
      msghdr message = {&from, sizeof(from), &data, 1, control, sizeof(control), 0};
      const ssize_t length = recvmsg(socket_.get(), &message, 0);
      if (length < 0) break;
      const auto interface = std::find_if(interfaces_.begin(), interfaces_.end(),
                                          [&](const auto& candidate) { return candidate.first == from.sll_ifindex; });
      if (interface == interfaces_.end()) continue;  // oob0, lo
      const iovec packet = {frame.data(), static_cast<std::size_t>(length)};
      const auto number = static_cast<std::uint32_t>(interface - interfaces_.begin());
      pcapng::add_packet(blocks, {.interface = number, .time_ns = time_of(message)}, {&packet, 1});
      ++count.written;
    }
  }
  tpacket_stats statistics = {};
  socklen_t size = sizeof(statistics);
  if (getsockopt(socket_.get(), SOL_PACKET, PACKET_STATISTICS, &statistics, &size) == 0)
    count.dropped = statistics.tp_drops;
  return count;
}

}  // namespace plugfest::netns
