#include "fabric/roce/port/udp_port.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace plugfest::roce {
namespace {

constexpr int kWantedBufferBytes = 8 << 20;
constexpr unsigned kFirstSourcePort = 0xc000;
constexpr unsigned kSourcePortMask = 0x3fff;
constexpr std::uint32_t kPortsApart = (kSourcePortMask + 1) / UdpPort::kSendSockets;

[[noreturn]] void fail(const char* action, const Address& address) {
  const int error = errno;
  throw_errno(std::string(action) + " for RoCE on " + text_of(address) + " port " + std::to_string(kRoceUdpPort),
              error);
}

void set(int descriptor, int level, int option, int value, const Address& address) {
  if (setsockopt(descriptor, level, option, &value, sizeof(value)) < 0) fail("set up a socket", address);
}

// Makes a buffer as large as allowed. The forced option needs CAP_NET_ADMIN in the initial user namespace.
void enlarge_buffer(int descriptor, int forced_option, int option) {
  const int bytes = kWantedBufferBytes;
  if (setsockopt(descriptor, SOL_SOCKET, forced_option, &bytes, sizeof(bytes)) < 0)
    setsockopt(descriptor, SOL_SOCKET, option, &bytes, sizeof(bytes));
}

Descriptor open_socket(const Address& address) {
  const int family = address.is_ipv4() ? AF_INET : AF_INET6;
  Descriptor descriptor(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor) fail("open a socket", address);
  if (family == AF_INET6) set(descriptor.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1, address);
  return descriptor;
}

bool bind_to(int descriptor, const Endpoint& endpoint, int interface_index) {
  const SocketAddress name(endpoint, interface_index);
  return bind(descriptor, name.get(), name.length()) == 0;
}

// Forbids fragmentation and ignores the kernel's path MTU: verbs programs choose the path MTU.
void forbid_fragments(int descriptor, const Address& address) {
  if (address.is_ipv4())
    set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, address);
  else
    set(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE, address);
}

// Sends datagrams for multicast groups through the interface of the address, with the hop limit of other datagrams.
void set_multicast_path(int descriptor, const Address& address, int interface_index) {
  constexpr int kHopLimit = 64;  // the default of other datagrams, which TransmitPath expects
  if (address.is_ipv4()) {
    const ip_mreqn interface = {.imr_multiaddr = {}, .imr_address = address.ipv4(), .imr_ifindex = 0};
    setsockopt(descriptor, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof(interface));
    set(descriptor, IPPROTO_IP, IP_MULTICAST_TTL, kHopLimit, address);
  } else {
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface_index, sizeof(interface_index));
    set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kHopLimit, address);
  }
}

// Discards packets for a send socket, which is never read.
void discard_received(int descriptor, const Address& address) {
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog filter = {1, program};
  if (setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) < 0)
    fail("set up a socket", address);
}

// Receives one batch. `address`: the socket's address.
bool receive_batch(int descriptor, const Address& address, std::span<iovec> parts, int flags, ReceivedBatch& batch) {
  alignas(cmsghdr) char control[3 * CMSG_SPACE(sizeof(int))];
  SocketAddress source;
  msghdr message = {};
  message.msg_name = source.to_fill();
  message.msg_namelen = SocketAddress::kCapacity;
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = receive_message(descriptor, message, flags);
  if (received < 0) return false;
  batch.arrival = {source.endpoint(), address};
  batch.length = static_cast<std::size_t>(received);
  batch.segment_bytes = batch.length;
  const bool ipv4 = address.is_ipv4();
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr; part_of = CMSG_NXTHDR(&message, part_of)) {
    int value = 0;
    std::memcpy(&value, CMSG_DATA(part_of), std::min(sizeof(value), part_of->cmsg_len - CMSG_LEN(0)));
    if (part_of->cmsg_level == IPPROTO_UDP) {
      if (part_of->cmsg_type == UDP_GRO && value > 0) batch.segment_bytes = static_cast<std::size_t>(value);
    } else if (part_of->cmsg_level != (ipv4 ? IPPROTO_IP : IPPROTO_IPV6)) {
      continue;
    } else if (part_of->cmsg_type == (ipv4 ? IP_TOS : IPV6_TCLASS)) {
      batch.arrival.traffic_class = static_cast<std::uint8_t>(value);
    } else if (part_of->cmsg_type == (ipv4 ? IP_TTL : IPV6_HOPLIMIT)) {
      batch.arrival.hop_limit = static_cast<std::uint8_t>(value);
    }
  }
  return true;
}

}  // namespace

bool SendSocket::unblock_if_writable() {
  if (!blocked_) return false;
  pollfd writable = {descriptor_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return false;
  blocked_ = false;
  return true;
}

UdpPort::UdpPort(const Address& address, int interface_index)
    : address_(address), interface_index_(interface_index), receive_(open_socket(address)) {
  set(receive_.get(), SOL_SOCKET, address.is_multicast() ? SO_REUSEADDR : SO_REUSEPORT, 1, address);
  set(receive_.get(), IPPROTO_UDP, UDP_GRO, 1, address);
  enlarge_buffer(receive_.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  // The kernel's rxe sends a UDP checksum of 0: the ICRC protects the packet.
  if (!address.is_ipv4()) set(receive_.get(), SOL_UDP, UDP_NO_CHECK6_RX, 1, address);
  if (!bind_to(receive_.get(), {address, kRoceUdpPort}, interface_index)) fail("bind a socket", address);
  if (address.is_multicast())
    join_group();
  else if (!map_.attach(receive_.get()))
    fail("share the port between processes", address);
  int granted = 0;
  socklen_t size = sizeof(granted);
  getsockopt(receive_.get(), SOL_SOCKET, SO_RCVBUF, &granted, &size);
  receive_buffer_bytes_ = static_cast<std::size_t>(granted);
}

// The socket gets only the packets of this interface, even if the host receives the group on another one.
void UdpPort::join_group() {
  const int receiver = receive_.get();
  if (address_.is_ipv4()) {
    set(receiver, IPPROTO_IP, IP_MULTICAST_ALL, 0, address_);
    const ip_mreqn group = {.imr_multiaddr = address_.ipv4(), .imr_address = {}, .imr_ifindex = interface_index_};
    if (setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)) == 0) return;
  } else {
    set(receiver, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, address_);
    ipv6_mreq group = {};
    std::memcpy(&group.ipv6mr_multiaddr, address_.bytes.data(), sizeof(group.ipv6mr_multiaddr));
    group.ipv6mr_interface = static_cast<unsigned>(interface_index_);
    if (setsockopt(receiver, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group, sizeof(group)) == 0) return;
  }
  fail("join the multicast group", address_);
}

bool UdpPort::receive(std::byte* buffer, ReceivedBatch& batch) const {
  iovec part = {buffer, kReceiveBytes};
  batch.bytes = buffer;
  return receive_batch(receive_.get(), address_, {&part, 1}, 0, batch);
}

bool UdpPort::peek(std::span<std::byte> start, ReceivedBatch& batch) const {
  iovec part = {start.data(), start.size()};
  return receive_batch(receive_.get(), address_, {&part, 1}, MSG_PEEK | MSG_TRUNC, batch);
}

bool UdpPort::receive(std::span<iovec> parts, ReceivedBatch& batch) const {
  return receive_batch(receive_.get(), address_, parts, 0, batch);
}

std::uint64_t UdpPort::new_buffer_drops() {
  std::array<std::uint32_t, SK_MEMINFO_VARS> information = {};
  socklen_t size = sizeof(information);
  if (getsockopt(receive_.get(), SOL_SOCKET, SO_MEMINFO, information.data(), &size) < 0) return 0;
  return information[SK_MEMINFO_DROPS] - std::exchange(buffer_drops_, information[SK_MEMINFO_DROPS]);
}

void UdpPort::report_traffic_class() {
  const bool ipv4 = address_.is_ipv4();
  set(receive_.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1, address_);
}

void UdpPort::report_headers() {
  const bool ipv4 = address_.is_ipv4();
  report_traffic_class();
  set(receive_.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, 1, address_);
}

SendSocket& UdpPort::send_socket(std::uint32_t queue_pair_number) {
  // Multiplicative hashing: its high bits depend on every bit of the number.
  const std::uint32_t hash = queue_pair_number * 0x9e3779b1u;
  // Checks the last socket, because an attempt that failed must open the sockets that are missing.
  if (!send_sockets_.back()) open_send_sockets(hash);
  static_assert(kSendSockets == 1 << 3);
  return *send_sockets_[hash >> (32 - 3)];
}

void UdpPort::open_send_sockets(std::uint32_t first_port) {
  for (std::size_t i = 0; i < send_sockets_.size(); ++i) {
    if (send_sockets_[i]) continue;
    Descriptor descriptor = open_socket(address_);
    forbid_fragments(descriptor.get(), address_);
    set_multicast_path(descriptor.get(), address_, interface_index_);
    Refusals::enable(descriptor.get(), address_);
    enlarge_buffer(descriptor.get(), SO_SNDBUFFORCE, SO_SNDBUF);
    discard_received(descriptor.get(), address_);
    for (unsigned attempt = 0; !send_sockets_[i]; ++attempt) {
      const auto offset = first_port + static_cast<std::uint32_t>(i) * kPortsApart + attempt;
      const auto port = static_cast<std::uint16_t>(kFirstSourcePort | (offset & kSourcePortMask));
      if (bind_to(descriptor.get(), {address_, port}, interface_index_))
        send_sockets_[i] = std::make_unique<SendSocket>(std::move(descriptor), port);
      else if (errno != EADDRINUSE || attempt == kSourcePortMask)
        fail("bind a source port", address_);
    }
  }
}

void UdpPort::list_blocked_senders(std::vector<int>& descriptors) const {
  for (const auto& sender : send_sockets_)
    if (sender && sender->blocked()) descriptors.push_back(sender->descriptor());
}

bool UdpPort::unblock_senders() {
  bool unblocked = false;
  for (const auto& sender : send_sockets_)
    if (sender && sender->unblock_if_writable()) unblocked = true;
  return unblocked;
}

// The next packet for another process tries again.
void UdpPort::probe_sockets(std::uint8_t own_slot, Nanoseconds now) {
  try {
    map_.probe(send_socket(0).descriptor(), shared_name(), own_slot, now);
  } catch (const std::system_error&) {
  }
}

// probe_sockets() has opened the send sockets before an answer arrives.
void UdpPort::learn(const PortMap::Claim& claim) {
  if (send_sockets_.front() && map_.learn(claim, send_sockets_.front()->descriptor(), shared_name()))
    map_.attach(receive_.get());
}

void UdpPort::close_in_child() {
  receive_ = Descriptor();
  for (auto& sender : send_sockets_)
    if (sender) sender->close_in_child();
}

}  // namespace plugfest::roce
