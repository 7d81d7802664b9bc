// Measures raw UDP between two hosts, which is the limit of a user-space NIC. The socket is used as by such a NIC:
// unconnected, with the "don't fragment" bit, and with a header before the payload of each packet.
//
//   plugfest-udp-probe receive PORT [PACKET_BYTES]                       until 300 ms without a packet
//   plugfest-udp-probe send ADDRESS PORT PACKET_BYTES PACKETS_PER_CALL SECONDS [checked]
//   plugfest-udp-probe echo|ping ADDRESS PORT BYTES ITERATIONS receive|memory
//
// If the sender is "checked" and the receiver knows the size of packets, they do what a NIC has to do. Packets have a
// header with the packet's number (16 bytes) and a CRC (4 bytes), unacknowledged bytes have a window, and the receiver
// acknowledges packets. Queue pairs, memory regions and retransmission are missing.
#include <fmt/format.h>
#include <netinet/udp.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fabric/roce/wire/icrc.h"
#include "harness/bench/udp_socket.h"

namespace {

using namespace plugfest::bench;

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kMaxPackets = 64;
constexpr std::size_t kPoolBytes = 1 << 20;    // the message size of the bandwidth rows
constexpr std::size_t kWindowBytes = 1 << 20;  // the largest congestion window of the NIC
constexpr std::uint64_t kPacketsPerAcknowledgement = 32;

std::uint32_t crc_of(const char* header, const char* payload, std::size_t bytes) {
  using plugfest::roce::crc32;
  return crc32(crc32(0, reinterpret_cast<const std::byte*>(header), kHeaderBytes),
               reinterpret_cast<const std::byte*>(payload), bytes);
}

// Checks the packets of one call. Returns the number of the last one.
std::uint64_t check_packets(const char* packets, std::size_t bytes, std::size_t packet_bytes) {
  std::uint64_t number = 0;
  for (const char* packet = packets; packet + packet_bytes <= packets + bytes; packet += packet_bytes) {
    std::uint32_t sent = 0;
    std::memcpy(&sent, packet + packet_bytes - kCrcBytes, kCrcBytes);
    if (crc_of(packet, packet + kHeaderBytes, packet_bytes - kHeaderBytes - kCrcBytes) != sent)
      throw std::runtime_error("a packet has a wrong CRC");
    std::memcpy(&number, packet, sizeof(number));
  }
  return number;
}

// Receives until 300 ms without a packet. `packet_bytes`: checks packets of this size and acknowledges them; 0:
// neither.
int receive(const std::string& port, std::size_t packet_bytes) {
  const int descriptor = udp_socket();
  set(descriptor, IPPROTO_UDP, UDP_GRO, 1);
  const timeval quiet = {0, 300'000};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof(quiet));
  bind_to(descriptor, endpoint("0.0.0.0", port));
  std::vector<char> buffer(1 << 16);
  double bytes = 0;
  std::uint64_t acknowledged = 0;
  Clock::time_point first, last;
  for (;;) {
    sockaddr_in from = {};
    socklen_t length = sizeof(from);
    auto* const sender = packet_bytes == 0 ? nullptr : reinterpret_cast<sockaddr*>(&from);
    const ssize_t count =
        recvfrom(descriptor, buffer.data(), buffer.size(), 0, sender, sender == nullptr ? nullptr : &length);
    if (count < 0 && bytes > 0) break;
    if (count < 0) continue;
    last = Clock::now();
    if (bytes == 0) first = last;
    bytes += static_cast<double>(count);
    if (packet_bytes == 0) continue;
    const std::uint64_t number = check_packets(buffer.data(), static_cast<std::size_t>(count), packet_bytes);
    if (number + 1 - acknowledged < kPacketsPerAcknowledgement) continue;
    acknowledged = number + 1;
    sendto(descriptor, &acknowledged, sizeof(acknowledged), 0, sender, length);
  }
  fmt::print("gbits_per_second {}\n", bytes * 8e-9 / std::chrono::duration<double>(last - first).count());
  return 0;
}

// Reads acknowledgements, and waits for one if `wait` is set. After 10 ms a lost window counts as acknowledged.
std::uint64_t take_acknowledgements(int descriptor, std::uint64_t acknowledged, std::uint64_t sent, bool wait) {
  constexpr int kLostMs = 10;
  if (wait) {
    pollfd readable = {.fd = descriptor, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, kLostMs) == 0) return sent;
  }
  std::uint64_t number = 0;
  while (recv(descriptor, &number, sizeof(number), MSG_DONTWAIT) == sizeof(number))
    acknowledged = std::max(acknowledged, number);
  return acknowledged;
}

// Sends `packets` packets with each call. `checked`: whether packets have numbers and CRCs, and unacknowledged bytes a
// window.
int send(const sockaddr_in& to, std::size_t packet_bytes, std::size_t packets, double seconds, bool checked) {
  if (packet_bytes <= kHeaderBytes + kCrcBytes || packets < 1 || packets > kMaxPackets)
    throw std::runtime_error("invalid packet size or number");
  const int descriptor = udp_socket();
  set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (packets > 1) set(descriptor, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(packet_bytes));
  std::vector<char> pool(kPoolBytes, 1);
  char headers[kMaxPackets][kHeaderBytes] = {};
  std::uint32_t crcs[kMaxPackets] = {};
  const std::size_t payload = packet_bytes - kHeaderBytes - (checked ? kCrcBytes : 0);
  const std::uint64_t window = kWindowBytes / packet_bytes;
  std::size_t offset = 0;
  std::uint64_t sent = 0, acknowledged = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < seconds) {
    if (checked) {
      acknowledged = take_acknowledgements(descriptor, acknowledged, sent, sent + packets - acknowledged > window);
      if (sent + packets - acknowledged > window) continue;
    }
    iovec parts[3 * kMaxPackets];
    msghdr message = {};
    message.msg_name = const_cast<sockaddr_in*>(&to);
    message.msg_namelen = sizeof(to);
    message.msg_iov = parts;
    for (std::size_t i = 0; i < packets; ++i, ++sent) {
      if (offset + payload > pool.size()) offset = 0;
      parts[message.msg_iovlen++] = {headers[i], kHeaderBytes};
      parts[message.msg_iovlen++] = {pool.data() + offset, payload};
      if (checked) {
        std::memcpy(headers[i], &sent, sizeof(sent));
        crcs[i] = crc_of(headers[i], pool.data() + offset, payload);
        parts[message.msg_iovlen++] = {&crcs[i], kCrcBytes};
      }
      offset += payload;
    }
    if (sendmsg(descriptor, &message, 0) < 0) plugfest::throw_errno("send messages");
  }
  return 0;
}

// Waits for messages from the peer. `memory`: polls a word that a second thread, which sleeps in recv, writes.
// Otherwise polls recv.
class Mailbox {
 public:
  Mailbox(int descriptor, bool memory) : descriptor_(descriptor), memory_(memory) {
    if (memory_) thread_ = std::thread([this] { keep_receiving(); });
  }
  ~Mailbox() {
    if (!thread_.joinable()) return;
    shutdown(descriptor_, SHUT_RD);
    thread_.join();
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void wait_for(int wanted) {
    while (arrived_.load(std::memory_order_acquire) < wanted)
      if (!memory_) take(MSG_DONTWAIT);
  }
  const sockaddr_in& sender() const { return sender_; }

 private:
  bool take(int flags) {
    char buffer[4096];
    sockaddr_in from = {};
    socklen_t length = sizeof(from);
    if (recvfrom(descriptor_, buffer, sizeof(buffer), flags, reinterpret_cast<sockaddr*>(&from), &length) <= 0)
      return errno == EAGAIN;
    if (arrived_.load(std::memory_order_relaxed) == 0) sender_ = from;
    arrived_.fetch_add(1, std::memory_order_release);
    return true;
  }
  void keep_receiving() {
    while (take(0)) {
    }
  }

  const int descriptor_;
  const bool memory_;
  sockaddr_in sender_ = {};
  std::atomic<int> arrived_{0};
  std::thread thread_;
};

int exchange(bool pings, const sockaddr_in& address, std::size_t bytes, int iterations, bool memory) {
  const int descriptor = udp_socket();
  sockaddr_in own = address;
  if (pings) own = endpoint("0.0.0.0", "0");
  bind_to(descriptor, own);
  Mailbox mailbox(descriptor, memory);
  const std::vector<char> message(bytes, 1);
  std::vector<double> half_trips;
  for (int i = 1; i <= iterations; ++i) {
    const Clock::time_point start = Clock::now();
    if (!pings) mailbox.wait_for(i);
    const sockaddr_in& to = pings ? address : mailbox.sender();
    if (sendto(descriptor, message.data(), message.size(), 0, generic(to), sizeof(to)) < 0)
      plugfest::throw_errno("send a message");
    if (!pings) continue;
    mailbox.wait_for(i);
    half_trips.push_back(seconds_since(start) * 1e6 / 2);
  }
  if (!pings) return 0;
  std::sort(half_trips.begin(), half_trips.end());
  fmt::print("median_us {}\np99_us {}\n", half_trips[half_trips.size() / 2], half_trips[half_trips.size() * 99 / 100]);
  return 0;
}

std::optional<int> run(const std::vector<std::string>& words) {
  const std::string mode = words.empty() ? "" : words[0];
  if (mode == "receive" && (words.size() == 2 || words.size() == 3))
    return receive(words[1], words.size() == 3 ? std::stoul(words[2]) : 0);
  if (mode == "send" && (words.size() == 6 || (words.size() == 7 && words[6] == "checked")))
    return send(endpoint(words[1], words[2]), std::stoul(words[3]), std::stoul(words[4]), std::stod(words[5]),
                words.size() == 7);
  if ((mode == "echo" || mode == "ping") && words.size() == 6)
    return exchange(mode == "ping", endpoint(words[1], words[2]), std::stoul(words[3]), std::stoi(words[4]),
                    words[5] == "memory");
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  return run_probe(argc, argv, "plugfest-udp-probe",
                   "receive PORT [PACKET_BYTES] | send ADDRESS PORT PACKET_BYTES PACKETS_PER_CALL SECONDS [checked] | "
                   "echo|ping ADDRESS PORT BYTES ITERATIONS receive|memory",
                   run);
}
