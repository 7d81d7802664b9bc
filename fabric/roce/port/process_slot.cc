// Takes slots, and forwards packets between the processes of a host.
#include "fabric/roce/port/process_slot.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "fabric/roce/port/port_map.h"
#include "fabric/roce/port/socket_calls.h"

namespace plugfest::roce {

namespace {

// Precedes forwarded packets.
struct Envelope {
  Arrival arrival;
  std::uint32_t segment_bytes = 0;
};

struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
};

Name name_of(const Address& address, unsigned slot) {
  Name name;
  name.address.sun_family = AF_UNIX;
  // An abstract name begins with a zero byte and has no terminating zero.
  const int written = std::snprintf(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1, "plugfest-roce-%s-%u",
                                    text_of(address).c_str(), slot);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(written));
  return name;
}

}  // namespace

ProcessSlot::ProcessSlot(const Address& address)
    : address_(address), descriptor_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  if (!descriptor_) throw std::system_error(errno, std::generic_category(), "unix socket");
  for (unsigned slot = PortMap::kFirstSlot; slot < PortMap::kProbeSlot; ++slot) {
    const Name name = name_of(address, slot);
    if (bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) {
      number_ = static_cast<std::uint8_t>(slot);
      return;
    }
    if (errno != EADDRINUSE) throw std::system_error(errno, std::generic_category(), "bind of a unix socket");
  }
  throw std::runtime_error("more than 254 processes use RoCE on " + text_of(address) + ": end some of them");
}

bool ProcessSlot::forward(std::uint8_t owner, const ReceivedBatch& batch) const {
  Envelope envelope = {batch.arrival, static_cast<std::uint32_t>(batch.segment_bytes)};
  iovec parts[] = {{&envelope, sizeof(envelope)}, {const_cast<std::byte*>(batch.bytes), batch.length}};
  Name name = name_of(address_, owner);
  msghdr message = {};
  message.msg_name = &name.address;
  message.msg_namelen = name.length;
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return send_message(descriptor_.get(), message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool ProcessSlot::receive(std::byte* buffer, ReceivedBatch& batch) const {
  Envelope envelope;
  iovec parts[] = {{&envelope, sizeof(envelope)}, {buffer, UdpPort::kReceiveBytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t received = receive_message(descriptor_.get(), message, MSG_DONTWAIT);
  if (received < static_cast<ssize_t>(sizeof(envelope))) return false;
  batch.bytes = buffer;
  batch.length = static_cast<std::size_t>(received) - sizeof(envelope);
  batch.segment_bytes = envelope.segment_bytes;
  batch.arrival = envelope.arrival;
  return true;
}

}  // namespace plugfest::roce
