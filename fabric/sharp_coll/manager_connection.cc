#include "fabric/sharp_coll/manager_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "fabric/sharp_coll/failure.h"

namespace plugfest::sharp_coll {
namespace {

using reduction::kManagerVariable;

constexpr Nanoseconds kConnectTimeout = 5'000'000'000;

[[noreturn]] void fail(const std::string& manager, const std::string& reason) {
  throw Failure(SHARP_COLL_ESESS_INIT, "aggregation manager " + manager + ": " + reason);
}

sockaddr_in parse(const std::string& manager) {
  const std::size_t colon = manager.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  std::uint16_t port = 0;
  const char* const end = manager.data() + manager.size();
  const bool valid = colon != std::string::npos &&
                     inet_pton(AF_INET, manager.substr(0, colon).c_str(), &address.sin_addr) == 1 &&
                     std::from_chars(manager.data() + colon + 1, end, port).ptr == end && port != 0;
  if (!valid)
    throw Failure(SHARP_COLL_ESESS_INIT, std::string(kManagerVariable) + "=" + manager + ": expected ADDRESS:PORT");
  address.sin_port = htons(port);
  return address;
}

// Waits until `events` or a deadline. Returns false at the deadline.
bool await(int fd, short events, Nanoseconds deadline) {
  while (true) {
    pollfd entry = {fd, events, 0};
    const Nanoseconds rest = std::max<Nanoseconds>(deadline - now_ns(), 0);
    const int ready = ::poll(&entry, 1, static_cast<int>((rest + 999'999) / 1'000'000));
    if (ready > 0) return true;
    if (ready == 0 && rest == 0) return false;
  }
}

}  // namespace

ManagerConnection::ManagerConnection(const std::string& manager) : manager_(manager) {
  if (manager.empty())
    throw Failure(
        SHARP_COLL_ESESS_INIT,
        std::string("no aggregation manager: ") + kManagerVariable +
            " is not set: start the fabric with `plugfest fabric up --reduction` and the program with `plugfest fabric "
            "exec`");
  const sockaddr_in address = parse(manager);
  socket_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) fail(manager_, std::string("cannot open a socket: ") + std::strerror(errno));
  reduction::watch_peer(socket_.get());
  int error = 0;
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) error = errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    error = ETIMEDOUT;
    if (await(socket_.get(), POLLOUT, now_ns() + kConnectTimeout))
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0)
    fail(manager_, std::string("cannot connect: ") + std::strerror(error) +
                       ": check that the fabric was started with --reduction and runs");
}

void ManagerConnection::send(const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  const Nanoseconds deadline = now_ns() + kConnectTimeout;
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t bytes = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (bytes > 0) {
      sent += static_cast<std::size_t>(bytes);
    } else if (errno == EAGAIN) {
      if (!await(socket_.get(), POLLOUT, deadline)) fail(manager_, "it does not read its connection");
    } else if (errno != EINTR) {
      fail(manager_, std::string("cannot send: ") + std::strerror(errno));
    }
  }
}

nlohmann::json ManagerConnection::receive(Nanoseconds timeout) {
  const Nanoseconds deadline = now_ns() + timeout;
  while (true) {
    if (std::optional<nlohmann::json> message = poll()) return *std::move(message);
    if (!await(socket_.get(), POLLIN, deadline))
      fail(manager_, "no answer within " + std::to_string(timeout / 1'000'000'000) + " s");
  }
}

std::optional<nlohmann::json> ManagerConnection::poll() {
  while (true) {
    if (std::optional<nlohmann::json> message = next_line()) return message;
    std::array<char, 16384> buffer;
    const ssize_t bytes = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes > 0) {
      if (!lines_.add({buffer.data(), static_cast<std::size_t>(bytes)}))
        fail(manager_, "it sent a line that is too long");
    } else if (bytes == 0) {
      fail(manager_, "it closed the connection: it has ended");
    } else if (errno == EAGAIN) {
      return std::nullopt;
    } else if (errno != EINTR) {
      fail(manager_, std::string("cannot receive: ") + std::strerror(errno));
    }
  }
}

std::optional<nlohmann::json> ManagerConnection::next_line() {
  const std::optional<std::string> line = lines_.next();
  if (!line) return std::nullopt;
  nlohmann::json message = nlohmann::json::parse(*line, nullptr, false);
  if (!message.is_object()) fail(manager_, "it sent a line that is not a JSON object");
  return message;
}

}  // namespace plugfest::sharp_coll
