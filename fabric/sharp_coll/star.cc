#include "fabric/sharp_coll/star.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "fabric/system/wait.h"

namespace plugfest::sharp_coll {
namespace {

// How long a rank waits for the others, and rank 0 for the next one.
constexpr std::chrono::milliseconds kConnectTimeout{60'000};

bool transfer_all(ssize_t (*call)(int, void*, std::size_t), int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = call(fd, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

bool send_all(const Descriptor& peer, const void* data, std::size_t bytes) {
  return transfer_all([](int fd, void* at, std::size_t size) { return send(fd, at, size, MSG_NOSIGNAL); }, peer.get(),
                      const_cast<void*>(data), bytes);
}

bool receive_all(const Descriptor& peer, void* data, std::size_t bytes) {
  return transfer_all([](int fd, void* at, std::size_t size) { return recv(fd, at, size, 0); }, peer.get(), data,
                      bytes);
}

Descriptor unix_socket() {
  Descriptor result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!result) throw_errno("create a Unix socket");
  return result;
}

}  // namespace

Star::Star(int rank, int ranks, const std::string& path) : rank_(rank), ranks_(ranks) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw std::runtime_error(path + ": too long for a socket: at most " + std::to_string(sizeof(address.sun_path) - 1) +
                             " characters");
  path.copy(address.sun_path, path.size());
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  if (ranks == 1) return;
  if (rank != 0) {
    // Rank 0 may not have started.
    Descriptor peer;
    const auto connects = [&] {
      peer = unix_socket();
      return connect(peer.get(), name, sizeof(address)) == 0;
    };
    if (!wait_until(connects, kConnectTimeout)) throw_errno("connect to " + path);
    if (!send_all(peer, &rank, sizeof(rank))) throw_errno("send the rank to " + path);
    peers_.push_back(std::move(peer));
    return;
  }
  const Descriptor listener = unix_socket();
  if (bind(listener.get(), name, sizeof(address)) != 0 || listen(listener.get(), ranks) != 0)
    throw_errno("listen at " + path);
  peers_.resize(static_cast<std::size_t>(ranks - 1));
  for (int i = 1; i < ranks; ++i) {
    pollfd entry = {listener.get(), POLLIN, 0};
    int ready = -1;
    while ((ready = poll(&entry, 1, static_cast<int>(kConnectTimeout.count()))) < 0 && errno == EINTR) {
    }
    if (ready <= 0) throw std::runtime_error(path + ": a rank did not connect");
    Descriptor peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    int who = 0;
    if (!peer || !receive_all(peer, &who, sizeof(who)) || who < 1 || who >= ranks)
      throw std::runtime_error(path + ": a rank did not connect");
    Descriptor& place = peers_[static_cast<std::size_t>(who - 1)];
    if (place) throw std::runtime_error(path + ": two ranks have the number " + std::to_string(who));
    place = std::move(peer);
  }
}

int Star::broadcast(void* data, int bytes) {
  for (const Descriptor& peer : peers_) {
    const auto size = static_cast<std::size_t>(bytes);
    if (!(rank_ == 0 ? send_all(peer, data, size) : receive_all(peer, data, size))) return -1;
  }
  return 0;
}

int Star::gather(const void* own, void* all, int bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (rank_ != 0) return send_all(peers_.front(), own, size) ? 0 : -1;
  auto* at = static_cast<char*>(all);
  std::memcpy(at, own, size);
  for (const Descriptor& peer : peers_)
    if (!receive_all(peer, at += size, size)) return -1;
  return 0;
}

int Star::barrier() {
  char own = 0;
  std::vector<char> all(static_cast<std::size_t>(ranks_));
  return gather(&own, all.data(), 1) != 0 || broadcast(&own, 1) != 0 ? -1 : 0;
}

sharp_coll_out_of_band_colls Star::collectives() {
  return {.bcast = [](void* star, void* data, int bytes,
                      int root) { return root == 0 ? static_cast<Star*>(star)->broadcast(data, bytes) : -1; },
          .barrier = [](void* star) { return static_cast<Star*>(star)->barrier(); },
          .gather = [](void* star, int root, void* own, void* all,
                       int bytes) { return root == 0 ? static_cast<Star*>(star)->gather(own, all, bytes) : -1; }};
}

}  // namespace plugfest::sharp_coll
