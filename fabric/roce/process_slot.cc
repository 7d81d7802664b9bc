// Takes slots and forwards packets between the processes of a host.
#include "fabric/roce/process_slot.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace plugfest::roce {

namespace {

// Goes before forwarded packets.
struct Envelope {
  sockaddr_in source;
  in_addr destination;
  std::uint32_t segment_bytes;
};

struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
};

Name name_of(in_addr address, unsigned slot) {
  Name name;
  name.address.sun_family = AF_UNIX;
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof(text));
  // An abstract name: it begins with a zero byte and has no terminating one.
  const int written =
      std::snprintf(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1, "plugfest-roce-%s-%u", text, slot);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(written));
  return name;
}

}  // namespace

ProcessSlot::ProcessSlot(in_addr address)
    : address_(address), descriptor_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  if (!descriptor_) throw std::system_error(errno, std::generic_category(), "unix socket");
  constexpr unsigned kSlots = 255;  // the last number is kept for probes
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    const Name name = name_of(address, slot);
    if (bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) {
      number_ = static_cast<std::uint8_t>(slot);
      return;
    }
    if (errno != EADDRINUSE) throw std::system_error(errno, std::generic_category(), "bind of a unix socket");
  }
  throw std::runtime_error(std::string("more than 255 processes use RoCE on ") + inet_ntoa(address) +
                           ": end some of them");
}

bool ProcessSlot::forward(std::uint8_t owner, in_addr destination, const ReceivedBatch& batch) const {
  Envelope envelope = {batch.source, destination, static_cast<std::uint32_t>(batch.segment_bytes)};
  iovec parts[] = {{&envelope, sizeof(envelope)}, {const_cast<std::byte*>(batch.bytes), batch.length}};
  Name name = name_of(address_, owner);
  msghdr message = {};
  message.msg_name = &name.address;
  message.msg_namelen = name.length;
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return sendmsg(descriptor_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool ProcessSlot::receive(std::byte* buffer, in_addr& destination, ReceivedBatch& batch) const {
  Envelope envelope = {};
  iovec parts[] = {{&envelope, sizeof(envelope)}, {buffer, UdpPort::kReceiveBytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t received = recvmsg(descriptor_.get(), &message, MSG_DONTWAIT);
  if (received < static_cast<ssize_t>(sizeof(envelope))) return false;
  batch.bytes = buffer;
  batch.length = static_cast<std::size_t>(received) - sizeof(envelope);
  batch.segment_bytes = envelope.segment_bytes;
  batch.source = envelope.source;
  destination = envelope.destination;
  return true;
}

}  // namespace plugfest::roce
