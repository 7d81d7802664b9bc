// A packet socket in a host, and the pcapng format.
#include "fabric/roce/verbs/testing/capture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "fabric/pcap/pcapng.h"

namespace plugfest::roce {
namespace {

constexpr int kReceiveBufferBytes = 64 << 20;
constexpr std::size_t kLargestFrame = 65536 + 64;

[[noreturn]] void fail_with(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

int open_packet_socket(const std::string& interface) {
  const int descriptor = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  if (descriptor < 0) fail_with("packet socket");
  // Forced: beyond the limit for ordinary sockets. Without the right to force, the limit itself.
  if (setsockopt(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof(int)) != 0)
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(int));
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(descriptor);
    fail_with("binding the packet socket");
  }
  return descriptor;
}

}  // namespace

Capture::Capture(netns::Fabric& fabric, const std::string& host, const std::string& interface) {
  fabric.call(host, [&] { socket_ = open_packet_socket(interface); });
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) fail_with("eventfd");
  receiver_ = std::thread([this] { receive(); });
}

Capture::~Capture() {
  if (receiver_.joinable()) {
    eventfd_write(stop_, 1);
    receiver_.join();
  }
  close(stop_);
  close(socket_);
}

void Capture::receive() {
  std::vector<std::uint8_t> frame(kLargestFrame);
  for (;;) {
    // Everything that waits comes before the word to stop.
    const ssize_t length = recv(socket_, frame.data(), frame.size(), MSG_DONTWAIT);
    if (length >= 0) {
      packets_.emplace_back(frame.begin(), frame.begin() + length);
      continue;
    }
    pollfd either[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
    poll(either, 2, -1);
    if ((either[0].revents & POLLIN) == 0 && (either[1].revents & POLLIN) != 0) return;
  }
}

std::size_t Capture::stop(const std::filesystem::path& file) {
  eventfd_write(stop_, 1);
  receiver_.join();
  tpacket_stats statistics = {};
  socklen_t size = sizeof(statistics);
  if (getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) != 0) fail_with("PACKET_STATISTICS");
  if (statistics.tp_drops != 0)
    throw std::runtime_error(
        fmt::format("the capture lost {} of {} packets", statistics.tp_drops, statistics.tp_packets));

  std::ofstream stream(file, std::ios::binary);
  std::vector<std::byte> blocks;
  pcap::add_section(blocks);
  pcap::add_interface(blocks, "capture", pcap::LinkType::kEthernet, kLargestFrame);
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    const iovec whole = {packets_[i].data(), packets_[i].size()};
    pcap::add_packet(blocks, {.time_ns = i}, {&whole, 1});  // times only number the packets
  }
  stream.write(reinterpret_cast<const char*>(blocks.data()), static_cast<std::streamsize>(blocks.size()));
  stream.close();
  if (!stream) throw std::runtime_error(file.string() + ": cannot be written");
  return packets_.size();
}

}  // namespace plugfest::roce
