#include "harness/cluster/agents/relay.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace plugfest::cluster {
namespace {

constexpr std::size_t kOneRead = 64 * 1024;

}  // namespace

void Relay::add(std::uint32_t channel, Descriptor end, Kind kind) {
  if (fcntl(end.get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("a channel of a rank");
  ends_.insert_or_assign(channel, End{std::move(end), kind});
}

void Relay::deliver(Message message) {
  const auto found = ends_.find(message.channel);
  if (message.kind == cluster::Kind::kClosed) {
    if (found != ends_.end()) ends_.erase(found);
    return;
  }
  if (found == ends_.end()) return;
  Chunk chunk{std::move(message.body)};
  if (message.opened >= kFirstOpened && !ends_.contains(message.opened)) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw_errno("a channel of a rank");
    chunk.passed = Descriptor(fds[1]);
    add(message.opened, Descriptor(fds[0]), Kind::kSocket);
  }
  found->second.outbox.push_back(std::move(chunk));
  if (!write(found->second)) remove(message.channel);
}

void Relay::remove(std::uint32_t channel) {
  ends_.erase(channel);
  send_({cluster::Kind::kClosed, rank_, channel});
}

bool Relay::write(End& end) {
  while (!end.outbox.empty()) {
    Chunk& chunk = end.outbox.front();
    iovec part{chunk.bytes.data() + chunk.sent, chunk.bytes.size() - chunk.sent};
    ssize_t size = 0;
    if (end.kind == Kind::kSocket) {
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      if (chunk.passed) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        const int fd = chunk.passed.get();
        std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
      }
      size = sendmsg(end.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
      size = ::write(end.fd.get(), part.iov_base, part.iov_len);
    }
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    chunk.passed.close();
    chunk.sent += static_cast<std::size_t>(size);
    if (chunk.sent == chunk.bytes.size()) end.outbox.pop_front();
  }
  return true;
}

bool Relay::read(std::uint32_t channel, End& end) {
  Message message{cluster::Kind::kData, rank_, channel};
  message.body.resize(kOneRead);
  ssize_t size = 0;
  Descriptor passed;
  if (end.kind == Kind::kSocket) {
    iovec part{message.body.data(), message.body.size()};
    msghdr header{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    size = recvmsg(end.fd.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    for (cmsghdr* item = size < 0 ? nullptr : CMSG_FIRSTHDR(&header); item != nullptr;
         item = CMSG_NXTHDR(&header, item)) {
      if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item), sizeof fd);
      passed = Descriptor(fd);
    }
  } else {
    size = ::read(end.fd.get(), message.body.data(), message.body.size());
  }
  if (size < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
  if (size == 0) return false;
  message.body.resize(static_cast<std::size_t>(size));
  if (passed) {
    message.opened = next_opened_++;
    add(message.opened, std::move(passed), Kind::kSocket);
  }
  send_(message);
  return true;
}

void Relay::add_to(std::vector<pollfd>& polled, bool may_read) {
  polled_.clear();
  for (const auto& [channel, end] : ends_) {
    const bool reads = end.kind != Kind::kPipeToWrite && may_read;
    polled.push_back({end.fd.get(), static_cast<short>((reads ? POLLIN : 0) | (end.outbox.empty() ? 0 : POLLOUT)), 0});
    polled_.push_back(channel);
  }
}

void Relay::serve(std::vector<pollfd>::const_iterator& next) {
  for (const std::uint32_t channel : std::exchange(polled_, {})) {
    const pollfd& ready = *next++;
    const auto found = ends_.find(channel);
    if (found == ends_.end() || ready.revents == 0) continue;
    bool open = true;
    if ((ready.revents & POLLOUT) != 0) open = write(found->second);
    if (open && (ready.revents & POLLIN) != 0) {
      open = read(channel, found->second);
    } else if (open && (ready.revents & (POLLHUP | POLLERR)) != 0) {
      // The reader of a pipe has closed it, or both ends of a socket are closed and no data is left.
      open = (ready.events & POLLIN) == 0 && found->second.kind != Kind::kPipeToWrite;
    }
    if (!open) remove(channel);
  }
}

}  // namespace plugfest::cluster
