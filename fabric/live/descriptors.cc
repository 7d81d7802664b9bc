#include "fabric/live/descriptors.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace plugfest::live {
namespace {

constexpr std::size_t kPerMessage = 250;  // the kernel's limit is 253

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(kPerMessage * sizeof(int))];
};

}  // namespace

bool send_descriptors(int socket, const std::vector<int>& fds) {
  for (std::size_t sent = 0; sent < fds.size();) {
    const std::size_t count = std::min(kPerMessage, fds.size() - sent);
    auto left = static_cast<std::uint32_t>(fds.size() - sent);
    iovec data = {&left, sizeof(left)};
    Control control = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data() + sent, count * sizeof(int));
    const ssize_t result = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) return false;
    sent += count;
  }
  return true;
}

std::vector<Descriptor> receive_descriptors(int socket) {
  std::vector<Descriptor> received;
  for (std::size_t wanted = 1; received.size() < wanted;) {
    std::uint32_t left = 0;
    iovec data = {&left, sizeof(left)};
    Control control = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    const ssize_t result = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (result < 0 && errno == EINTR) continue;
    if (result != sizeof(left)) {
      throw std::runtime_error(result < 0 ? std::strerror(errno) : "connection closed");
    }
    const std::size_t before = received.size();
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        received.emplace_back(fd);
      }
    }
    // The kernel drops descriptors beyond the process's limit.
    if ((message.msg_flags & MSG_CTRUNC) != 0 || received.size() == before)
      throw std::runtime_error(fmt::format("this process cannot open {} more files (ulimit -n)", left));
    wanted = before + left;
  }
  return received;
}

}  // namespace plugfest::live
