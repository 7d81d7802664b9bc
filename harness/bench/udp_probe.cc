// Measures raw UDP between two hosts. The socket is used as by a RoCEv2 NIC in user space: unconnected, with the "don't
// fragment" bit, and with a header before the payload of each packet.
//
//   plugfest-udp-probe receive PORT                                      until 300 ms without a packet
//   plugfest-udp-probe send ADDRESS PORT PACKET_BYTES PACKETS_PER_CALL SECONDS
//   plugfest-udp-probe echo|ping ADDRESS PORT BYTES ITERATIONS receive|memory
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/bench/udp_socket.h"

namespace {

using namespace plugfest::bench;

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kMaxPackets = 64;
constexpr std::size_t kPoolBytes = 1 << 20;  // the message size of the bandwidth rows

int receive(const std::string& port) {
  const int descriptor = receiving_socket(port);
  std::vector<char> buffer(1 << 16);
  double bytes = 0;
  Clock::time_point first, last;
  for (;;) {
    const ssize_t count = recv(descriptor, buffer.data(), buffer.size(), 0);
    if (count < 0 && bytes > 0) break;
    if (count < 0) continue;
    last = Clock::now();
    if (bytes == 0) first = last;
    bytes += static_cast<double>(count);
  }
  print_bandwidth(bytes, first, last);
  return 0;
}

int send(const sockaddr_in& to, std::size_t packet_bytes, std::size_t packets, double seconds) {
  if (packet_bytes <= kHeaderBytes || packets < 1 || packets > kMaxPackets)
    throw std::runtime_error("invalid packet size or number");
  const int descriptor = udp_socket();
  set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (packets > 1) set(descriptor, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(packet_bytes));
  std::vector<char> pool(kPoolBytes, 1);
  char headers[kMaxPackets][kHeaderBytes] = {};
  const std::size_t payload = packet_bytes - kHeaderBytes;
  std::size_t offset = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < seconds) {
    iovec parts[2 * kMaxPackets];
    for (std::size_t i = 0; i < packets; ++i) {
      if (offset + payload > pool.size()) offset = 0;
      parts[2 * i] = {headers[i], kHeaderBytes};
      parts[2 * i + 1] = {pool.data() + offset, payload};
      offset += payload;
    }
    send_parts(descriptor, to, parts, 2 * packets);
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
    if (sendto(descriptor, message.data(), message.size(), 0, generic(to), sizeof(to)) < 0) fail("sendto");
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
  if (mode == "receive" && words.size() == 2) return receive(words[1]);
  if (mode == "send" && words.size() == 6)
    return send(endpoint(words[1], words[2]), std::stoul(words[3]), std::stoul(words[4]), std::stod(words[5]));
  if ((mode == "echo" || mode == "ping") && words.size() == 6)
    return exchange(mode == "ping", endpoint(words[1], words[2]), std::stoul(words[3]), std::stoi(words[4]),
                    words[5] == "memory");
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  return run_probe(argc, argv, "plugfest-udp-probe",
                   "receive PORT | send ADDRESS PORT PACKET_BYTES PACKETS_PER_CALL SECONDS | "
                   "echo|ping ADDRESS PORT BYTES ITERATIONS receive|memory",
                   run);
}
