#include "harness/wire/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace plugfest::wire {

bool Channel::send(std::uint32_t id, std::uint32_t kind, std::span<const std::byte> body, int passed_fd) {
  const FrameHeader header{static_cast<std::uint32_t>(body.size()), id, kind};
  iovec parts[2] = {{const_cast<FrameHeader*>(&header), sizeof header},
                    {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &passed_fd, sizeof passed_fd);
  }
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    message.msg_control = nullptr;  // the first bytes carried the descriptor
    message.msg_controllen = 0;
    auto left = static_cast<std::size_t>(sent);
    for (iovec& part : parts) {
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
  return true;
}

std::optional<Frame> Channel::receive(int* passed_fd) {
  if (passed_fd != nullptr) *passed_fd = -1;
  for (;;) {
    if (auto frame = take_frame()) return frame;
    if (!fill(true, passed_fd)) return std::nullopt;
  }
}

std::optional<Frame> Channel::poll() {
  for (;;) {
    if (auto frame = take_frame()) return frame;
    if (!fill(false, nullptr)) return std::nullopt;
  }
}

std::optional<Frame> Channel::take_frame() {
  FrameHeader header;
  if (inbox_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, inbox_.data(), sizeof header);
  if (header.size > kMaxBody) throw WireError("the size of a message is too large");
  const std::size_t whole = sizeof header + header.size;
  if (inbox_.size() < whole) return std::nullopt;
  Frame frame{header, {inbox_.begin() + sizeof header, inbox_.begin() + static_cast<std::ptrdiff_t>(whole)}};
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(whole));
  return frame;
}

bool Channel::fill(bool wait, int* passed_fd) {
  std::byte bytes[8192];
  iovec part{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  for (;;) {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (passed_fd != nullptr) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const ssize_t size = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (size <= 0) {
      closed_ = true;
      return false;
    }
    for (cmsghdr* item = passed_fd == nullptr ? nullptr : CMSG_FIRSTHDR(&message); item != nullptr;
         item = CMSG_NXTHDR(&message, item)) {
      if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
        std::memcpy(passed_fd, CMSG_DATA(item), sizeof *passed_fd);
      }
    }
    inbox_.insert(inbox_.end(), bytes, bytes + size);
    return true;
  }
}

}  // namespace plugfest::wire
