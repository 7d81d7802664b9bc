#include "fabric/system/descriptor_passing.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace plugfest {
namespace {

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(kMaxPassed * sizeof(int))];
};

}  // namespace

std::pair<Descriptor, Descriptor> make_socket_pair(const std::string& action) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_errno(action);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

ssize_t send_with_descriptors(int socket, std::span<iovec> parts, std::span<const int> fds, int flags) {
  if (fds.size() > kMaxPassed) {
    errno = EINVAL;
    return -1;
  }
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  Control control;
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    std::memset(control.bytes, 0, message.msg_controllen);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t receive_with_descriptors(int socket, void* bytes, std::size_t size, std::vector<Descriptor>* passed,
                                 int flags) {
  iovec part = {bytes, size};
  Control control;
  msghdr message = {};
  ssize_t received;
  do {
    message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = passed == nullptr ? nullptr : control.bytes;
    message.msg_controllen = passed == nullptr ? 0 : sizeof(control.bytes);
    received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return received;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at < item->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + at, sizeof(fd));
      passed->emplace_back(fd);
    }
  }
  return received;
}

}  // namespace plugfest
