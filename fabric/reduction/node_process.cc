#include "fabric/reduction/node_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "fabric/reduction/control_link.h"
#include "fabric/reduction/datagrams.h"
#include "fabric/reduction/messages.h"
#include "fabric/reduction/node.h"
#include "fabric/reduction/node_report.h"

namespace plugfest::reduction {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxPacketBytes = 65536;
constexpr int kBatchesOfOneTurn = 8;  // batches of a socket before the other sockets are served
constexpr std::size_t kBatch = kMaxDatagrams;

// Resident memory of this process.
std::size_t memory_bytes() {
  std::size_t total = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> total >> resident)
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return 0;
}

// Up to kBatch packets of one socket, with the address of the peer of each.
class Batch {
 public:
  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Makes room for packets of `bytes`. The batch must be empty.
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    capacity_ = bytes;
    memory_.resize(kBatch * bytes);
    for (std::size_t i = 0; i < kBatch; ++i) {
      buffers_[i].iov_base = memory_.data() + i * bytes;
      messages_[i].msg_hdr = {};
      messages_[i].msg_hdr.msg_name = &names_[i];
      messages_[i].msg_hdr.msg_iov = &buffers_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  bool is_full() const { return count_ == kBatch; }

  // Appends a packet. Returns false if it is too long.
  bool add(const Address& to, std::span<const std::byte> packet) {
    if (packet.size() > capacity_) return false;
    sockaddr_in& name = names_[count_];
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(to.ip);
    name.sin_port = htons(to.port);
    std::memcpy(buffers_[count_].iov_base, packet.data(), packet.size());
    buffers_[count_++].iov_len = packet.size();
    return true;
  }

  // Packets that the socket does not take count as lost: the rank repeats its contribution.
  void send(int socket) {
    std::array<std::size_t, kBatch> order = {};
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto receiver = [&](std::size_t i) { return std::pair(names_[i].sin_addr.s_addr, names_[i].sin_port); };
    // Sorts the packets by receiver, because consecutive packets to one receiver are sent together.
    std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count_),
                     [&](std::size_t a, std::size_t b) { return receiver(a) < receiver(b); });
    std::array<Datagram, kBatch> datagrams;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t at = order[i];
      const bool same = i > 0 && receiver(at) == receiver(order[i - 1]);
      datagrams[i] = {{memory_.data() + at * capacity_, buffers_[at].iov_len},
                      same ? datagrams[i - 1].to : &names_[at]};
    }
    send_datagrams(socket, std::span(datagrams).first(count_));
    count_ = 0;
  }

  // Receives packets and passes them to `handle`. Returns whether more may be waiting.
  template <typename Handle>
  bool receive(int socket, Handle handle) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      buffers_[i].iov_len = capacity_;
      messages_[i].msg_hdr.msg_namelen = sizeof(names_[i]);
    }
    const int count = recvmmsg(socket, messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      handle(Address{ntohl(names_[at].sin_addr.s_addr), ntohs(names_[at].sin_port)},
             std::span<const std::byte>(memory_.data() + at * capacity_, messages_[at].msg_len));
    }
    return count == static_cast<int>(kBatch);
  }

 private:
  std::size_t capacity_ = 0;  // room for each packet, in bytes
  std::size_t count_ = 0;
  std::vector<std::byte> memory_;
  std::array<iovec, kBatch> buffers_ = {};
  std::array<sockaddr_in, kBatch> names_ = {};
  std::array<mmsghdr, kBatch> messages_ = {};
};

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
      if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
        throw_errno("read the address of a socket of the node");
      by_local_[ntohl(own.sin_addr.s_addr)] = socket.get();
    }
    received_.reserve(kPacketHeaderBytes);
  }

  void run() {
    std::vector<pollfd> entries = {{control_.get(), POLLIN, 0}};
    for (const Descriptor& socket : sockets_) entries.push_back({socket.get(), POLLIN, 0});
    while (true) {
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) throw_errno("wait for packets");
      if (entries[0].revents != 0 && !serve_control()) return;
      for (std::size_t i = 1; i < entries.size(); ++i)
        if (entries[i].revents != 0) receive(entries[i].fd);
      for (auto& [socket, batch] : unsent_) batch.send(socket);
    }
  }

 private:
  // Returns false if the manager has closed the connection.
  bool serve_control() {
    std::array<char, 16384> buffer;
    const ssize_t bytes = recv(control_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes <= 0) return false;
    if (!lines_.add({buffer.data(), static_cast<std::size_t>(bytes)}))
      throw std::runtime_error("the manager sent a line that is too long");
    while (const std::optional<std::string> line = lines_.next()) {
      const json message = json::parse(*line, nullptr, false);
      if (message.is_object() && text_of(message, "type") == "report") {
        if (!report(message)) return false;
        continue;
      }
      const auto group = message.is_object()
                             ? integer_of(message, "group", 1, std::numeric_limits<std::uint32_t>::max())
                             : std::nullopt;
      if (!group) throw std::runtime_error("the manager sent an invalid message");
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

  // Answers a question of `plugfest fabric show`. Returns false if the manager has closed the connection.
  bool report(const json& question) {
    NodeReport own;
    own.groups = node_.groups();
    own.memory_bytes = memory_bytes();
    own.counters = node_.counters();
    nlohmann::ordered_json answer = to_json(own);
    answer["type"] = "report";
    answer["asker"] = question.value("asker", json());
    return write_all(control_.get(), answer.dump() + "\n");
  }

  void configure(std::uint32_t group, const json& message) {
    GroupConfig config;
    config.group = group;
    const auto fragment_window = integer_of(message, "window", 1, 1u << 16);
    const auto payload = integer_of(message, "max_payload", 8, kMaxPacketBytes);
    const auto children = message.find("children");
    if (!fragment_window || !payload || children == message.end() || !children->is_array() || children->empty())
      throw std::runtime_error("the manager sent an invalid configuration");
    config.fragment_window = static_cast<std::uint32_t>(*fragment_window);
    config.max_payload = static_cast<std::uint32_t>(*payload);
    for (const json& child : *children) config.children.push_back(add_peer(child));
    if (const auto parent = message.find("parent"); parent != message.end()) {
      const auto child = integer_of(message, "child", 0, 65535);
      if (!child) throw std::runtime_error("the manager sent an invalid configuration");
      config.parent = {add_peer(*parent), static_cast<std::uint16_t>(*child)};
    }
    capacity_ = std::max(capacity_, kPacketHeaderBytes + config.max_payload);
    received_.reserve(capacity_);
    for (auto& [socket, batch] : unsent_) batch.reserve(capacity_);
    node_.configure(std::move(config));
  }

  Address add_peer(const json& object) {
    const std::optional<Peer> peer = parse_peer(object);
    const auto socket = peer ? by_local_.find(peer->local.value) : by_local_.end();
    if (socket == by_local_.end()) throw std::runtime_error("the manager named a peer on an address without a socket");
    by_peer_[peer->socket.address.value] = socket->second;
    unsent_[socket->second];
    return to_address(peer->socket);
  }

  void receive(int socket) {
    const auto handle = [this](const Address& from, std::span<const std::byte> packet) { node_.receive(from, packet); };
    for (int i = 0; i < kBatchesOfOneTurn && received_.receive(socket, handle); ++i) continue;
  }

  // Adds a packet to the batch that is sent at the end of the turn.
  void send(const Address& to, std::span<const std::byte> packet) {
    const auto socket = by_peer_.find(to.ip);
    if (socket == by_peer_.end()) return;
    Batch& batch = unsent_[socket->second];
    if (batch.is_full()) batch.send(socket->second);
    batch.add(to, packet);
  }

  Descriptor control_;
  std::vector<Descriptor> sockets_;
  std::map<std::uint32_t, int> by_local_;  // the socket of an own address
  std::map<std::uint32_t, int> by_peer_;   // the socket of the link to an address
  LineReader lines_{kMaxAnswerBytes};
  std::size_t capacity_ = kPacketHeaderBytes;  // the longest packet of all groups
  Batch received_;
  std::map<int, Batch> unsent_;  // the packets to send, by the socket
  AggregationNode node_;
};

}  // namespace

void run_node(Descriptor control, std::vector<Descriptor> sockets) {
  NodeProcess(std::move(control), std::move(sockets)).run();
}

}  // namespace plugfest::reduction
