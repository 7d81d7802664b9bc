// Measures the upper limit for a NIC in user space: UDP with GSO and GRO, a CRC of each packet on both sides, a window
// of unacknowledged bytes, and acknowledgements; no queue pairs, no memory regions, no retransmission.
//
//   plugfest-ceiling-probe receive PORT PACKET_BYTES                    until 300 ms without a packet
//   plugfest-ceiling-probe send ADDRESS PORT PACKET_BYTES SECONDS
//
// A packet has a header with its number (16 bytes), payload, and a CRC (4 bytes).
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/roce/wire/icrc.h"
#include "harness/bench/udp_socket.h"

namespace {

using namespace plugfest::bench;

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kMaxPackets = 64;
constexpr std::size_t kMaxDatagramBytes = 65'000;
constexpr std::size_t kPoolBytes = 1 << 20;    // the message size of the bandwidth rows
constexpr std::size_t kWindowBytes = 1 << 20;  // the largest congestion window of the NIC
constexpr std::uint64_t kPacketsPerAcknowledgement = 32;

std::uint32_t crc_of(const char* header, std::size_t header_bytes, const char* payload, std::size_t bytes) {
  using plugfest::roce::crc32;
  return crc32(crc32(0, reinterpret_cast<const std::byte*>(header), header_bytes),
               reinterpret_cast<const std::byte*>(payload), bytes);
}

int receive(const std::string& port, std::size_t packet_bytes) {
  const int descriptor = receiving_socket(port);
  std::vector<char> buffer(1 << 16);
  std::uint64_t packets = 0, acknowledged = 0, wrong = 0;
  Clock::time_point first, last;
  for (;;) {
    sockaddr_in from = {};
    socklen_t length = sizeof(from);
    const ssize_t count =
        recvfrom(descriptor, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (count < 0 && packets > 0) break;
    if (count < 0) continue;
    last = Clock::now();
    if (packets == 0) first = last;
    std::uint64_t number = 0;
    for (std::size_t at = 0; at + packet_bytes <= static_cast<std::size_t>(count); at += packet_bytes) {
      const char* packet = buffer.data() + at;
      std::uint32_t sent = 0;
      std::memcpy(&sent, packet + packet_bytes - kCrcBytes, kCrcBytes);
      wrong += crc_of(packet, kHeaderBytes, packet + kHeaderBytes, packet_bytes - kHeaderBytes - kCrcBytes) != sent;
      std::memcpy(&number, packet, sizeof(number));
      ++packets;
    }
    if (number + 1 - acknowledged < kPacketsPerAcknowledgement) continue;
    acknowledged = number + 1;
    sendto(descriptor, &acknowledged, sizeof(acknowledged), 0, reinterpret_cast<const sockaddr*>(&from), length);
  }
  if (wrong > 0) throw std::runtime_error(fmt::format("{} packets have a wrong CRC", wrong));
  print_bandwidth(static_cast<double>(packets * packet_bytes), first, last);
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

int send(const sockaddr_in& to, std::size_t packet_bytes, double seconds) {
  const std::size_t packets = std::min(kMaxPackets, kMaxDatagramBytes / packet_bytes);
  const std::uint64_t window = kWindowBytes / packet_bytes;
  const int descriptor = udp_socket();
  set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  set(descriptor, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(packet_bytes));
  std::vector<char> pool(kPoolBytes, 1);
  char headers[kMaxPackets][kHeaderBytes] = {};
  std::uint32_t crcs[kMaxPackets] = {};
  const std::size_t payload = packet_bytes - kHeaderBytes - kCrcBytes;
  std::size_t offset = 0;
  std::uint64_t sent = 0, acknowledged = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < seconds) {
    acknowledged = take_acknowledgements(descriptor, acknowledged, sent, sent + packets - acknowledged > window);
    if (sent + packets - acknowledged > window) continue;
    iovec parts[3 * kMaxPackets];
    for (std::size_t i = 0; i < packets; ++i, ++sent) {
      if (offset + payload > pool.size()) offset = 0;
      std::memcpy(headers[i], &sent, sizeof(sent));
      crcs[i] = crc_of(headers[i], kHeaderBytes, pool.data() + offset, payload);
      parts[3 * i] = {headers[i], kHeaderBytes};
      parts[3 * i + 1] = {pool.data() + offset, payload};
      parts[3 * i + 2] = {&crcs[i], kCrcBytes};
      offset += payload;
    }
    send_parts(descriptor, to, parts, 3 * packets);
  }
  return 0;
}

std::optional<int> run(const std::vector<std::string>& words) {
  if (words.size() < 3) return std::nullopt;
  const std::size_t bytes = std::stoul(words[words[0] == "receive" ? 2 : words.size() - 2]);
  if (bytes <= kHeaderBytes + kCrcBytes || bytes > 9000)
    throw std::runtime_error(fmt::format("packets of {} bytes: expected 21 to 9000", bytes));
  if (words[0] == "receive" && words.size() == 3) return receive(words[1], bytes);
  if (words[0] == "send" && words.size() == 5) return send(endpoint(words[1], words[2]), bytes, std::stod(words[4]));
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  return run_probe(argc, argv, "plugfest-ceiling-probe",
                   "receive PORT PACKET_BYTES | send ADDRESS PORT PACKET_BYTES SECONDS", run);
}
