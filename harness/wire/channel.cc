#include "harness/wire/channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/system/descriptor_passing.h"

namespace plugfest::wire {

void require_sendable(std::span<const std::byte> body) {
  if (body.size() > kMaxBody) throw WireError("the size of a message is too large");
}

bool Channel::send(std::uint32_t id, std::uint32_t kind, std::span<const std::byte> body, int passed_fd,
                   const std::function<void()>& wait_for_room) {
  require_sendable(body);
  const FrameHeader header{static_cast<std::uint32_t>(body.size()), id, kind};
  iovec parts[2] = {{const_cast<FrameHeader*>(&header), sizeof header},
                    {const_cast<std::byte*>(body.data()), body.size()}};
  std::span<const int> fds(&passed_fd, passed_fd >= 0 ? 1 : 0);
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = send_with_descriptors(fd(), parts, fds, wait_for_room ? MSG_DONTWAIT : 0);
    if (sent < 0 && wait_for_room && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for_room();
      continue;
    }
    if (sent < 0) return false;
    fds = {};  // the first bytes carried the descriptor
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

std::optional<Frame> Channel::receive(Descriptor* passed) {
  for (;;) {
    if (auto frame = take_frame()) return frame;
    if (!fill(true, passed)) return std::nullopt;
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

bool Channel::fill(bool wait, Descriptor* passed) {
  std::byte bytes[8192];
  std::vector<Descriptor> descriptors;
  const ssize_t size = receive_with_descriptors(fd(), bytes, sizeof bytes, passed == nullptr ? nullptr : &descriptors,
                                                wait ? 0 : MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (size <= 0) {
    closed_ = true;
    return false;
  }
  if (!descriptors.empty()) *passed = std::move(descriptors.back());
  inbox_.insert(inbox_.end(), bytes, bytes + size);
  return true;
}

}  // namespace plugfest::wire
