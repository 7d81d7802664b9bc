#include "harness/cluster/agents/relay.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "fabric/system/descriptor_passing.h"

namespace plugfest::cluster {
namespace {

constexpr std::size_t kOneRead = 64 * 1024;

}  // namespace

void Relay::add(std::uint32_t channel, Descriptor end, Kind kind) {
  if (fcntl(end.get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("make a channel of a rank non-blocking");
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
    auto [ours, theirs] = make_socket_pair("make a channel of a rank");
    chunk.passed = std::move(theirs);
    add(message.opened, std::move(ours), Kind::kSocket);
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
    const int passed = chunk.passed.get();
    const std::span<const int> fds(&passed, chunk.passed ? 1 : 0);
    const ssize_t size = end.kind == Kind::kSocket ? send_with_descriptors(end.fd.get(), {&part, 1}, fds, MSG_DONTWAIT)
                                                   : ::write(end.fd.get(), part.iov_base, part.iov_len);
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
  std::vector<Descriptor> passed;
  const ssize_t size = end.kind == Kind::kSocket ? receive_with_descriptors(end.fd.get(), message.body.data(),
                                                                            message.body.size(), &passed, MSG_DONTWAIT)
                                                 : ::read(end.fd.get(), message.body.data(), message.body.size());
  if (size < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
  if (size == 0) return false;
  message.body.resize(static_cast<std::size_t>(size));
  if (!passed.empty()) {
    message.opened = next_opened_++;
    add(message.opened, std::move(passed.back()), Kind::kSocket);
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
