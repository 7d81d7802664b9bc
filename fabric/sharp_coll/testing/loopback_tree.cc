#include "fabric/sharp_coll/testing/loopback_tree.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "fabric/reduction/node.h"
#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/system/file.h"

namespace plugfest::sharp_coll::testing {
namespace {

// A socket at a free port of an address.
Descriptor local_socket(int type, const std::string& address) {
  Descriptor result(socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &name.sin_addr);
  if (!result || bind(result.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0)
    throw_errno("bind a socket to " + address);
  return result;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_in name = {};
  socklen_t size = sizeof(name);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.sin_port);
}

}  // namespace

class LoopbackTree::Server {
 public:
  explicit Server(Options options)
      : options_(std::move(options)),
        listener_(local_socket(SOCK_STREAM, options_.address)),
        node_socket_(local_socket(SOCK_DGRAM, options_.address)) {
    if (listen(listener_.get(), 64) != 0) throw_errno("listen at " + options_.address);
    stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() { die(); }

  std::string manager() const { return options_.address + ":" + std::to_string(port_of(listener_)); }

  void die() {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  int await_leaves() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return joined_ > 0 && gone_ == joined_; });
    return left_;
  }

 private:
  struct Client {
    Descriptor socket;
    std::string received;
    bool joined = false;
    bool left = false;
  };

  void serve() {
    while (true) {
      std::vector<pollfd> entries = {
          {stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {node_socket_.get(), POLLIN, 0}};
      for (const Client& client : clients_) entries.push_back({client.socket.get(), POLLIN, 0});
      poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) break;
      for (std::size_t i = entries.size(); i-- > 3;)
        if (entries[i].revents != 0 && !serve_client(clients_[i - 3]))
          clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i - 3));
      if (entries[1].revents != 0) {
        Client client;
        client.socket = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (client.socket) clients_.push_back(std::move(client));
      }
      if (entries[2].revents != 0) serve_packet();
    }
    clients_.clear();
    listener_.close();
    node_socket_.close();
  }

  // Returns false if the client has closed its connection.
  bool serve_client(Client& client) {
    std::array<char, 4096> buffer;
    const ssize_t bytes = recv(client.socket.get(), buffer.data(), buffer.size(), 0);
    if (bytes <= 0) {
      if (client.joined && !client.left) fail_others(client, "a rank has ended");
      const std::lock_guard lock(mutex_);
      if (client.joined) ++gone_;
      if (client.left) ++left_;
      changed_.notify_all();
      return false;
    }
    client.received.append(buffer.data(), static_cast<std::size_t>(bytes));
    for (std::size_t end; (end = client.received.find('\n')) != std::string::npos;) {
      const nlohmann::json message = nlohmann::json::parse(client.received.substr(0, end));
      client.received.erase(0, end + 1);
      write_all(client.socket.get(), answer_to(message, client).dump() + "\n");
    }
    return true;
  }

  void fail_others(const Client& client, const char* reason) {
    const nlohmann::json message = {{"type", "failed"}, {"group", 7}, {"reason", reason}};
    for (const Client& other : clients_)
      if (&other != &client) write_all(other.socket.get(), message.dump() + "\n");
  }

  nlohmann::json answer_to(const nlohmann::json& message, Client& client) {
    const std::string type = message.at("type");
    if (type == "create") return create(message);
    if (type == "leave") {
      client.left = true;
      if (message.value("unfinished", false)) fail_others(client, "a rank left it during an operation");
      return {{"type", "left"}};
    }
    client.joined = true;
    const std::lock_guard lock(mutex_);
    ++joined_;
    return {{"type", "joined"}};
  }

  nlohmann::json create(const nlohmann::json& message) {
    const bool is_locked = options_.sat_is_locked && message.at("mode") == "sat";
    if (options_.refuse_with != 0 || is_locked)
      return {{"type", "refused"},
              {"code", is_locked ? SHARP_COLL_ELOCK_FAILED : options_.refuse_with},
              {"reason", is_locked ? "group 9 holds the SAT lock" : "the test refuses it"}};
    reduction::GroupConfig config = {
        .group = 7, .fragment_window = options_.fragment_window, .max_payload = 1024, .parent = {}, .children = {}};
    nlohmann::json nodes = nlohmann::json::array();
    for (const nlohmann::json& rank : message.at("ranks")) {
      in_addr address = {};
      inet_pton(AF_INET, rank.at("address").get<std::string>().c_str(), &address);
      nodes.push_back(
          {{"address", options_.address}, {"port", port_of(node_socket_)}, {"child", config.children.size()}});
      config.children.push_back({ntohl(address.s_addr), rank.at("port").get<std::uint16_t>()});
    }
    const nlohmann::json created = {{"type", "created"},
                                    {"group", config.group},
                                    {"tree", 1},
                                    {"window", config.fragment_window},
                                    {"max_payload", config.max_payload},
                                    {"nodes", nodes}};
    node_.configure(std::move(config));
    return created;
  }

  void serve_packet() {
    std::array<std::byte, 2048> buffer;
    sockaddr_in from = {};
    socklen_t size = sizeof(from);
    const ssize_t bytes =
        recvfrom(node_socket_.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (bytes < 0 || is_lost()) return;
    node_.receive({ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)},
                  std::span(buffer).first(static_cast<std::size_t>(bytes)));
  }

  void send_packet(const reduction::Address& to, std::span<const std::byte> packet) {
    if (is_lost()) return;
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(to.ip);
    name.sin_port = htons(to.port);
    sendto(node_socket_.get(), packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  }

  bool is_lost() { return std::uniform_real_distribution<>(0, 1)(random_) < options_.loss; }

  const Options options_;
  Descriptor listener_;
  Descriptor node_socket_;
  Descriptor stop_;
  std::vector<Client> clients_;
  reduction::AggregationNode node_{
      [this](const reduction::Address& to, std::span<const std::byte> packet) { send_packet(to, packet); }};
  std::mt19937_64 random_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  int joined_ = 0;  // guarded by mutex_, as the members below
  int gone_ = 0;
  int left_ = 0;
  std::thread thread_;
};

LoopbackTree::LoopbackTree(Options options) : server_(std::make_unique<Server>(std::move(options))) {}
LoopbackTree::~LoopbackTree() = default;
std::string LoopbackTree::manager() const { return server_->manager(); }
void LoopbackTree::die() { server_->die(); }
int LoopbackTree::await_leaves() { return server_->await_leaves(); }

}  // namespace plugfest::sharp_coll::testing
