// The connection between the two processes of a verbs test: TCP for control, and a queue pair.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest::rxe {

/// Throws std::runtime_error with `what` unless `holds`.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Exchanges values with the peer and synchronizes with it. Errors of all functions: std::runtime_error.
class ControlChannel {
 public:
  /// Connects to `address`; null: waits for a connection.
  explicit ControlChannel(const char* address) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(kPort);
    if (address != nullptr) {
      require(inet_pton(AF_INET, address, &name.sin_addr) == 1, "invalid address");
      require(connect(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0,
              "cannot connect to the server");
      socket_ = std::move(socket);
      return;
    }
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    require(bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 && listen(socket.get(), 1) == 0,
            "cannot listen");
    socket_ = Descriptor(accept(socket.get(), nullptr, nullptr));
    require(static_cast<bool>(socket_), "cannot accept the client");
  }

  template <typename Value>
  void send_value(const Value& value) {
    require(send(socket_.get(), &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value),
            "the peer has closed the connection");
  }
  template <typename Value>
  Value receive_value() {
    Value value;
    require(recv(socket_.get(), &value, sizeof(value), MSG_WAITALL) == sizeof(value),
            "the peer has closed the connection");
    return value;
  }
  /// Waits until the peer has called synchronize() as often as this side.
  void synchronize() {
    send_value('.');
    receive_value<char>();
  }

 private:
  static constexpr std::uint16_t kPort = 18515;

  Descriptor socket_;
};

struct ConnectionOptions {
  ibv_qp_type type = IBV_QPT_RC;
  std::string device;
  int gid_index = 0;
  const char* address = nullptr;  ///< the server's address; null: this process is the server
};

/// Owns all verbs objects of one side: a queue pair connected to the peer, and one memory region. Errors of all
/// functions: std::runtime_error.
class VerbsConnection {
 public:
  static constexpr std::size_t kMemoryBytes = 1 << 18;
  static constexpr std::uint32_t kQKey = 0x1ee7;

  /// Opens the device, creates the objects and connects the queue pair.
  explicit VerbsConnection(const ConnectionOptions& options);
  ~VerbsConnection();
  VerbsConnection(const VerbsConnection&) = delete;
  VerbsConnection& operator=(const VerbsConnection&) = delete;

  ibv_qp_type type() const { return type_; }
  ControlChannel& channel() { return channel_; }
  std::vector<std::uint8_t>& memory() { return memory_; }
  ibv_pd* domain() { return domain_; }
  ibv_mr* region() { return region_; }

  /// The remote address of an offset into the peer's memory, and its key.
  std::uint64_t remote_address(std::size_t offset) const { return peer_.address + offset; }
  std::uint32_t remote_key() const { return peer_.key; }
  /// Sets the destination of a datagram.
  void set_datagram_destination(ibv_send_wr& request) const { request.wr.ud = {address_handle_, peer_.number, kQKey}; }

  void post_receive(std::size_t offset, std::uint32_t length);
  /// Posts a signaled request for `length` bytes at `offset` of this side's memory.
  void post(ibv_send_wr request, std::size_t offset, std::uint32_t length);
  /// Posts a request without data.
  void post(ibv_send_wr request);
  /// Polls for the next completion, which must be successful. `name`: the name of the operation in the error message.
  ibv_wc wait_for_completion(const std::string& name);

 private:
  /// The data that a side sends to its peer.
  struct Endpoint {
    ibv_gid gid;
    std::uint32_t number;
    std::uint32_t key;
    std::uint64_t address;
  };

  void open(const std::string& name);
  void connect(int gid_index, int access);
  void modify(ibv_qp_attr& attributes, int mask);

  const ibv_qp_type type_;
  std::vector<std::uint8_t> memory_;
  ControlChannel channel_;
  Endpoint peer_ = {};
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  ibv_ah* address_handle_ = nullptr;
};

}  // namespace plugfest::rxe
