#include "fabric/live/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <stdexcept>

#include "fabric/netns/build.h"
#include "fabric/netns/sandbox.h"
#include "fabric/system/descriptor_passing.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"

namespace plugfest::live {

// The descriptors of a large fabric take several messages. Each says how many are not sent yet, including its own.

bool send_descriptors(int socket, const std::vector<int>& fds) {
  for (std::size_t sent = 0; sent < fds.size();) {
    const std::size_t count = std::min(kMaxPassed, fds.size() - sent);
    auto left = static_cast<std::uint32_t>(fds.size() - sent);
    iovec data = {&left, sizeof(left)};
    if (send_with_descriptors(socket, {&data, 1}, {fds.data() + sent, count}) < 0) return false;
    sent += count;
  }
  return true;
}

std::vector<Descriptor> receive_descriptors(int socket) {
  std::vector<Descriptor> received;
  for (std::size_t wanted = 1; received.size() < wanted;) {
    std::uint32_t left = 0;
    const std::size_t before = received.size();
    const ssize_t result = receive_with_descriptors(socket, &left, sizeof(left), &received);
    if (result < 0) throw_errno("receive its descriptors");
    if (result != sizeof(left)) throw std::runtime_error("it closed the connection");
    // The kernel drops descriptors beyond the process's limit.
    if (received.size() - before < std::clamp<std::size_t>(left, 1, kMaxPassed))
      throw std::runtime_error(fmt::format("this process cannot open {} more files (ulimit -n)", left));
    wanted = before + left;
  }
  return received;
}

// The keeper consists of two processes: one outside the sandbox holds the lock on the name and removes the files at the
// end; one inside builds the fabric and serves the socket. The caller waits for one message: "up" or the error.

namespace {

constexpr std::string_view kUp = "up";
constexpr int kListenQueue = 64;
constexpr int kRecordCheckMs = 2000;
constexpr int kAcceptPauseMs = 200;  // before another attempt to accept, if no descriptor is left
constexpr timeval kClientSendTimeout = {5, 0};

Descriptor listen_at(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (socket.get() < 0 || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(socket.get(), kListenQueue) != 0)
    throw_errno("listen on the socket of the keeper");
  return socket;
}

// Whether the peer process has the same user. In a user namespace of one user, other users of the machine have the
// overflow user id.
bool is_same_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Returns false if no descriptor or memory is left for the client.
bool serve_client(int listener, const std::vector<int>& fds) {
  const Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (client.get() < 0) return !must_pause_accepting(errno);
  if (!is_same_user(client.get())) return true;
  setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &kClientSendTimeout, sizeof(kClientSendTimeout));
  send_descriptors(client.get(), fds);
  return true;
}

// Whether the record still exists. Without it no command can find the fabric; for example, the session manager removes
// the user's runtime folder at logout.
bool record_exists(const Claim& claim) {
  struct stat record = {};
  return fstat(claim.lock.get(), &record) == 0 && record.st_nlink > 0;
}

// Serves clients until a signal arrives or the record is removed.
void serve(int listener, int signals, const Claim& claim, const netns::BuiltFabric& built) {
  const netns::SandboxNamespaces sandbox = netns::current_sandbox();
  std::vector<int> fds = {sandbox.user.get(), sandbox.processes.get(), sandbox.network.get(), sandbox.mounts.get()};
  for (const netns::HostNamespaces& host : built.hosts) {
    fds.push_back(host.network.get());
    fds.push_back(host.mounts.get());
  }
  for (const Descriptor& network : built.switches) fds.push_back(network.get());
  bool accepts = true;
  while (record_exists(claim)) {
    // A client that cannot be accepted would keep the listener readable. poll() ignores a descriptor of -1.
    pollfd events[] = {{accepts ? listener : -1, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(events, 2, accepts ? kRecordCheckMs : kAcceptPauseMs) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    accepts = events[0].revents == 0 || serve_client(listener, fds);
  }
}

// Returns false if the caller has exited.
bool send_text(const Descriptor& caller, std::string_view text) {
  return send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Detaches from the terminal and from the caller's folder.
void detach() {
  setsid();
  if (chdir("/") != 0) throw_errno("change to the folder /");
  const Descriptor null_device(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd <= 2; ++fd) dup2(null_device.get(), fd);
}

// Runs inside the sandbox.
void build_and_serve(Descriptor& caller, const Claim& claim, int listener, const topology::Graph& graph,
                     const netns::Options& options, const Attach& attach, const std::string& specification) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stop_signals, number);
  sigprocmask(SIG_BLOCK, &stop_signals, nullptr);  // before the fabric starts threads
  const Descriptor signals(signalfd(-1, &stop_signals, SFD_CLOEXEC));
  if (signals.get() < 0) throw_errno("create a signal descriptor");
  netns::Fabric fabric(graph, options);
  const std::shared_ptr<void> attached = attach ? attach(fabric, specification) : nullptr;
  if (!send_text(caller, kUp)) return;  // the caller was killed, so no user knows this fabric
  caller.close();
  serve(listener, signals.get(), claim, fabric.built());
}

[[noreturn]] void run_keeper(const StateFolder& folder, const Claim& claim, Record& record, Descriptor& caller,
                             const topology::Graph& graph, const netns::Options& options, const Attach& attach) {
  bool inside = false;
  try {
    const std::string text = is_yaml_file(record.topology) ? read_file(record.topology) : "";
    detach();
    record.keeper = getpid();
    record.since = std::time(nullptr);
    const Descriptor listener = listen_at(folder.socket_path(record.name));
    folder.write(claim, record, text);  // after the socket: a fabric with a record can be reached
    // The outside process keeps the connection open, so that it can report an error of the sandbox.
    if (!netns::enter_sandbox()) {
      inside = true;
      build_and_serve(caller, claim, listener.get(), graph, options, attach, record.specification);
    }
  } catch (const std::exception& error) {
    send_text(caller, error.what());
  }
  if (!inside) folder.remove(record.name);
  _exit(0);
}

std::string receive_text(int socket) {
  char text[4096];
  for (;;) {
    const ssize_t length = recv(socket, text, sizeof(text), 0);
    if (length >= 0) return {text, static_cast<std::size_t>(length)};
    if (errno != EINTR) throw_errno("receive the answer of the keeper");
  }
}

}  // namespace

std::optional<Record> start_keeper(const StateFolder& folder, Record record, const topology::Graph& graph,
                                   const netns::Options& options, const Attach& attach) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    throw_errno("make a socket pair for the keeper");
  const Descriptor ours(sockets[0]);
  Descriptor theirs(sockets[1]);
  Claim claim = folder.claim(record.name);
  const pid_t keeper = fork();
  if (keeper < 0) {
    folder.remove(record.name);
    throw_errno("fork the keeper");
  }
  if (keeper == 0) run_keeper(folder, claim, record, theirs, graph, options, attach);
  claim.lock.close();
  theirs.close();
  const std::string answer = receive_text(ours.get());
  if (answer == kUp) return claim.stale;
  await_exit(keeper);  // it removes its files
  throw std::runtime_error(answer.empty() ? fmt::format("the keeper of fabric {} was killed", record.name) : answer);
}

}  // namespace plugfest::live
