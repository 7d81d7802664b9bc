// A TCP connection between the two processes of a verbs test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>

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
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(kPort);
    if (address != nullptr) {
      require(inet_pton(AF_INET, address, &name.sin_addr) == 1, "invalid address");
      require(connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0, "cannot connect to the server");
      socket_ = fd;
      return;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    require(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 && listen(fd, 1) == 0, "cannot listen");
    socket_ = accept(fd, nullptr, nullptr);
    close(fd);
  }
  ~ControlChannel() { close(socket_); }
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  template <typename Value>
  void send_value(const Value& value) {
    require(write(socket_, &value, sizeof(value)) == sizeof(value), "the peer has closed the connection");
  }
  template <typename Value>
  Value receive_value() {
    Value value;
    require(recv(socket_, &value, sizeof(value), MSG_WAITALL) == sizeof(value), "the peer has closed the connection");
    return value;
  }
  /// Waits until the peer has called synchronize() as often as this side.
  void synchronize() {
    send_value('.');
    receive_value<char>();
  }

 private:
  static constexpr std::uint16_t kPort = 18515;

  int socket_ = -1;
};

}  // namespace plugfest::rxe
