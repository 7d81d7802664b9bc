#include "fabric/rdma_cm/ports.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "fabric/system/descriptor_passing.h"

namespace plugfest::rdma_cm {
namespace {

struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Abstract names belong to a network namespace, so hosts of a fabric do not share them; hosts of a loopback fabric have
// different addresses.
Name name_of(const Port& port) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const std::string text =
      fmt::format("plugfest-rdma-cm/{:x}/{}/{}", port.space, roce::text_of(port.endpoint.address), port.endpoint.port);
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());  // the first byte 0 makes it abstract
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_errno("create a Unix socket");
  return socket;
}

}  // namespace

BoundPort::BoundPort(const Port& port) : port_(port), socket_(make_socket()) {
  const Name name = name_of(port);
  if (::bind(socket_.get(), name.get(), name.length) != 0) throw_errno("bind a Unix socket");
}

std::optional<Descriptor> BoundPort::receive(void* bytes, std::size_t size) const {
  std::vector<Descriptor> passed;
  const ssize_t received = receive_with_descriptors(socket_.get(), bytes, size, &passed, MSG_DONTWAIT);
  if (received != static_cast<ssize_t>(size) || passed.size() != 1) return std::nullopt;
  return std::move(passed.front());
}

bool pass_connection(const Port& port, int connection, const void* bytes, std::size_t size) {
  const Name name = name_of(port);
  const Descriptor socket = make_socket();
  if (::connect(socket.get(), name.get(), name.length) != 0) return false;
  iovec part = {.iov_base = const_cast<void*>(bytes), .iov_len = size};
  return send_with_descriptors(socket.get(), {&part, 1}, {&connection, 1}) == static_cast<ssize_t>(size);
}

}  // namespace plugfest::rdma_cm
