#include "fabric/live/live_fabric.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "fabric/live/keeper.h"
#include "fabric/system/file.h"
#include "fabric/system/wait.h"

namespace plugfest::live {
namespace {

constexpr timeval kKeeperTimeout = {30, 0};  // a keeper answers after it has built the fabric, which may be large
constexpr std::chrono::milliseconds kExitTimeout{10000};

Descriptor connect_to(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("create a socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    setsockopt(socket.get(), SOL_SOCKET, option, &kKeeperTimeout, sizeof(kKeeperTimeout));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw_errno("connect to its socket");
  return socket;
}

bool connects(const std::string& path, Descriptor& socket) {
  try {
    socket = connect_to(path);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

}  // namespace

std::vector<Record> list(const StateFolder& folder, std::vector<Record>& stale) {
  std::vector<Record> alive;
  for (const std::string& name : folder.names()) {
    std::optional<Record> dead;
    if (auto record = folder.find(name, &dead)) alive.push_back(*std::move(record));
    if (dead && dead->keeper > 0) stale.push_back(*std::move(dead));  // otherwise its keeper had not written the record
  }
  return alive;
}

Joined join(const StateFolder& folder, const Record& record) {
  Joined joined;
  joined.graph = topology::named(record.specification);
  joined.graph.name = record.topology;
  netns::require_descriptors(joined.graph);
  const std::size_t hosts = joined.graph.hosts.size();
  std::vector<Descriptor> fds;
  try {
    const Descriptor keeper = connect_to(folder.socket_path(record.name));
    fds = receive_descriptors(keeper.get());
    if (fds.size() != 4 + 2 * hosts + joined.graph.switches.size())
      throw std::runtime_error("it belongs to another version of plugfest");
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("fabric {}: keeper process {}: {}", record.name, record.keeper, error.what()));
  }
  std::size_t next = 0;
  const auto take = [&] { return std::move(fds[next++]); };
  joined.sandbox.user = take();
  joined.sandbox.processes = take();
  joined.sandbox.network = take();
  joined.sandbox.mounts = take();
  for (std::size_t i = 0; i < hosts; ++i) {
    Descriptor network = take();
    joined.built.hosts.push_back({std::move(network), take()});
  }
  for (std::size_t i = 0; i < joined.graph.switches.size(); ++i) joined.built.switches.push_back(take());
  joined.built.home_mounts = Descriptor(dup(joined.sandbox.mounts.get()));
  return joined;
}

void take_down(const StateFolder& folder, const std::string& name) {
  Descriptor socket;
  const auto is_up = [&] { return folder.find(name).has_value(); };
  const auto answers = [&] {
    const std::optional<Record> record = folder.find(name);
    return !record || connects(folder.socket_path(name), socket) || record->problem != kBeingBuilt;
  };
  wait_until(answers, kExitTimeout);
  if (!socket && !is_up()) return;
  if (!socket)
    throw std::runtime_error(fmt::format("fabric {}: no socket in {}: remove {}.fabric there, which ends the keeper",
                                         name, folder.path(), name));
  // The process that listens, as this process namespace numbers it; 0 if it is not visible here.
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    throw_errno("identify the keeper of fabric " + name);
  socket.close();  // the keeper's descriptors that it has received would keep the fabric alive
  if (peer.pid == 0)
    throw std::runtime_error(
        fmt::format("fabric {}: its keeper is not visible here: type fabric down outside fabric exec", name));
  const Descriptor keeper(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  // If the lock is still held now, the descriptor refers to the keeper and not to a later process with the same id.
  if (keeper.get() < 0 || !is_up()) return;
  for (const int number : {SIGTERM, SIGKILL}) {
    if (syscall(SYS_pidfd_send_signal, keeper.get(), number, nullptr, 0) != 0 && errno != ESRCH)
      throw_errno(fmt::format("end the keeper of fabric {}, process {}", name, peer.pid));
    if (number == SIGTERM) syscall(SYS_pidfd_send_signal, keeper.get(), SIGCONT, nullptr, 0);
    pollfd end = {keeper.get(), POLLIN, 0};
    while (poll(&end, 1, static_cast<int>(kExitTimeout.count())) < 0 && errno == EINTR) continue;
    if ((end.revents & POLLIN) != 0) break;
  }
  // The last process of a killed keeper releases the name. find() then removes its files.
  if (!wait_until([&] { return !is_up(); }, kExitTimeout))
    throw std::runtime_error(
        fmt::format("fabric {} is still up: its keeper, process {}, does not end", name, peer.pid));
}

}  // namespace plugfest::live
