// plugfest-aggregation: the manager or a node, on sockets that the fabric's keeper passes as descriptors from 3.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "fabric/reduction/control.h"
#include "fabric/reduction/messages.h"
#include "fabric/reduction/node.h"

namespace plugfest::reduction {
namespace {

using nlohmann::json;

constexpr std::size_t kMostPacketBytes = 65536;
constexpr int kPacketsOfOneTurn = 256;  // of a socket, before the other sockets

Address to_address(const RankSocket& socket) { return {socket.address.value, socket.port}; }

class NodeProcess {
 public:
  NodeProcess(Descriptor control, std::vector<Descriptor> sockets)
      : control_(std::move(control)),
        sockets_(std::move(sockets)),
        node_([this](const Address& to, std::span<const std::byte> packet) { send(to, packet); }) {
    for (const Descriptor& socket : sockets_) {
      sockaddr_in own = {};
      socklen_t size = sizeof(own);
      if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) throw_errno("node: socket");
      by_local_[ntohl(own.sin_addr.s_addr)] = socket.get();
    }
  }

  void run() {
    std::vector<pollfd> entries = {{control_.get(), POLLIN, 0}};
    for (const Descriptor& socket : sockets_) entries.push_back({socket.get(), POLLIN, 0});
    while (true) {
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) throw_errno("node: poll");
      if (entries[0].revents != 0 && !serve_control()) return;
      for (std::size_t i = 1; i < entries.size(); ++i)
        if (entries[i].revents != 0) receive(entries[i].fd);
    }
  }

 private:
  // Returns false if the manager has closed the connection.
  bool serve_control() {
    std::array<char, 16384> buffer;
    const ssize_t bytes = recv(control_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes <= 0) return false;
    if (!lines_.add({buffer.data(), static_cast<std::size_t>(bytes)})) throw std::runtime_error("node: a long line");
    while (const std::optional<std::string> line = lines_.next()) {
      const json message = json::parse(*line, nullptr, false);
      const auto group = message.is_object()
                             ? integer_of(message, "group", 1, std::numeric_limits<std::uint32_t>::max())
                             : std::nullopt;
      if (!group) throw std::runtime_error("node: not a message of the manager");
      const auto number = static_cast<std::uint32_t>(*group);
      if (text_of(message, "type") == "remove") {
        node_.remove(number);
      } else {
        configure(number, message);
        if (!write_all(control_.get(), json{{"type", "configured"}, {"group", number}}.dump() + "\n")) return false;
      }
    }
    return true;
  }

  void configure(std::uint32_t group, const json& message) {
    GroupConfig config;
    config.group = group;
    const auto window = integer_of(message, "window", 1, 1u << 16);
    const auto payload = integer_of(message, "max_payload", 8, kMostPacketBytes);
    const auto children = message.find("children");
    if (!window || !payload || children == message.end() || !children->is_array() || children->empty())
      throw std::runtime_error("node: configure: a bad message");
    config.window = static_cast<std::uint32_t>(*window);
    config.max_payload = static_cast<std::uint32_t>(*payload);
    for (const json& child : *children) config.children.push_back(add_peer(child));
    if (const auto parent = message.find("parent"); parent != message.end())
      config.parent = {add_peer(*parent), static_cast<std::uint16_t>(integer_of(message, "child", 0, 65535).value())};
    node_.configure(std::move(config));
  }

  Address add_peer(const json& object) {
    const std::optional<Peer> peer = parse_peer(object);
    const auto socket = peer ? by_local_.find(peer->local.value) : by_local_.end();
    if (socket == by_local_.end()) throw std::runtime_error("node: configure: a peer without a socket");
    by_peer_[peer->socket.address.value] = socket->second;
    return to_address(peer->socket);
  }

  void receive(int socket) {
    for (int i = 0; i < kPacketsOfOneTurn; ++i) {
      sockaddr_in from = {};
      socklen_t size = sizeof(from);
      const ssize_t bytes =
          recvfrom(socket, buffer_.data(), buffer_.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
      if (bytes < 0) return;
      node_.receive({ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)},
                    std::span(buffer_).first(static_cast<std::size_t>(bytes)));
    }
  }

  // A packet that the socket does not take counts as lost: the rank repeats its contribution.
  void send(const Address& to, std::span<const std::byte> packet) {
    const auto socket = by_peer_.find(to.ip);
    if (socket == by_peer_.end()) return;
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(to.ip);
    name.sin_port = htons(to.port);
    sendto(socket->second, packet.data(), packet.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name),
           sizeof(name));
  }

  Descriptor control_;
  std::vector<Descriptor> sockets_;
  std::map<std::uint32_t, int> by_local_;  // the socket of an own address
  std::map<std::uint32_t, int> by_peer_;   // the socket of the link to an address
  LineReader lines_{16u << 20};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMostPacketBytes);
  AggregationNode node_;
};

}  // namespace

}  // namespace plugfest::reduction

int main(int argc, char** argv) {
  using namespace plugfest;
  using namespace plugfest::reduction;
  const std::string role = argc == 3 ? argv[1] : "";
  try {
    if (role == "manager") {
      Manager manager{Trees(topology::named(argv[2]))};
      serve(manager, Descriptor(3));
    } else if (role == "node") {
      std::vector<Descriptor> sockets;
      for (int i = 1; i < std::atoi(argv[2]); ++i) sockets.emplace_back(3 + i);
      NodeProcess(Descriptor(3), std::move(sockets)).run();
    } else {
      std::fputs("plugfest-aggregation: plugfest fabric up --reduction starts this program\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest-aggregation: %s\n", error.what());
    return 1;
  }
  return 0;
}
