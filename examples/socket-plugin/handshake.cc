#include "handshake.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace example {
namespace {

constexpr int kBacklog = 4096;

int open_socket(in_addr address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr = address;
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

Listener* Listener::open(in_addr address, Handle* handle) {
  const int fd = open_socket(address);
  if (fd < 0) return nullptr;
  *handle = {};
  socklen_t size = sizeof handle->address;
  const bool ready = listen(fd, kBacklog) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&handle->address), &size) == 0 &&
                     getrandom(&handle->key, sizeof handle->key, 0) == sizeof handle->key;
  if (!ready) {
    close(fd);
    return nullptr;
  }
  return new Listener(fd, handle->key);
}

Listener::~Listener() {
  close(socket_);
  for (const Pending& pending : pending_) close(pending.socket);
}

std::optional<int> Listener::accept() {
  for (int fd; (fd = accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    Pending pending;
    pending.socket = fd;
    pending_.push_back(pending);
  }
  for (std::size_t i = 0; i < pending_.size();) {
    Pending& pending = pending_[i];
    const ssize_t n = recv(pending.socket, reinterpret_cast<char*>(&pending.key) + pending.bytes,
                           sizeof pending.key - pending.bytes, 0);
    const bool silent = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n > 0) pending.bytes += static_cast<std::size_t>(n);
    if (silent || (n > 0 && pending.bytes < sizeof pending.key)) {
      ++i;
      continue;
    }
    const int fd = pending.socket;
    const bool valid = n > 0 && pending.key == key_;
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (valid) return fd;
    close(fd);
  }
  return std::nullopt;
}

bool connect_step(in_addr local, Handle* handle, int* socket) {
  *socket = -1;
  int fd = static_cast<int>(handle->socket) - 1;
  if (fd < 0) {
    fd = open_socket(local);
    if (fd < 0) return false;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&handle->address), sizeof handle->address) != 0 &&
        errno != EINPROGRESS) {
      close(fd);
      return false;
    }
    handle->socket = fd + 1;
  }
  pollfd wanted{fd, POLLOUT, 0};
  if (poll(&wanted, 1, 0) == 0) return true;
  handle->socket = 0;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  // The buffer of a new connection always has space for eight bytes.
  if (error != 0 || send(fd, &handle->key, sizeof handle->key, MSG_NOSIGNAL) != sizeof handle->key) {
    close(fd);
    return false;
  }
  *socket = fd;
  return true;
}

}  // namespace example
