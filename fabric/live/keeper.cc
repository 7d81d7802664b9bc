// The caller waits for one message: "up", or why not. Outside the sandbox a process holds the name and removes the
// files at the end; inside it another builds the fabric and answers the socket.
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
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "fabric/live/descriptors.h"
#include "fabric/netns/build.h"
#include "fabric/netns/sandbox/sandbox.h"

namespace plugfest::live {
namespace {

constexpr std::string_view kUp = "up";
constexpr int kListenQueue = 64;
constexpr int kLookAgainMs = 2000;
constexpr timeval kClientPatience = {5, 0};

[[noreturn]] void throw_failed(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

std::string text_of_file(const std::string& specification) {
  if (!specification.ends_with(".yaml") && !specification.ends_with(".yml")) return "";
  std::ifstream file(specification);
  return {std::istreambuf_iterator<char>(file), {}};
}

Descriptor listen_at(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (socket.get() < 0 || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(socket.get(), kListenQueue) != 0) {
    throw_failed("socket of the keeper");
  }
  return socket;
}

// Whether the other side is this user, as seen in the user namespace that we are in: another user of the machine has no
// number here.
bool is_same_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void answer_one(int listener, const std::vector<int>& fds) {
  const Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (client.get() < 0 || !is_same_user(client.get())) return;
  setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &kClientPatience, sizeof(kClientPatience));
  send_descriptors(client.get(), fds);
}

// Whether the record is still in its folder. Without it nobody finds the fabric again: a session's folder goes with the
// session.
bool is_known(const Claim& claim) {
  struct stat record = {};
  return fstat(claim.lock.get(), &record) == 0 && record.st_nlink > 0;
}

// Until a signal says that it is enough.
void serve(int listener, int signals, const Claim& claim, const netns::BuiltFabric& built) {
  const netns::SandboxNamespaces sandbox = netns::current_sandbox();
  std::vector<int> fds = {sandbox.user.get(), sandbox.processes.get(), sandbox.network.get(), sandbox.mounts.get()};
  for (const netns::HostNamespaces& host : built.hosts) {
    fds.push_back(host.network.get());
    fds.push_back(host.mounts.get());
  }
  for (const Descriptor& one : built.switches) fds.push_back(one.get());
  while (is_known(claim)) {
    pollfd either[] = {{listener, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(either, 2, kLookAgainMs) < 0 && errno != EINTR) return;
    if (either[1].revents != 0) return;
    if (either[0].revents != 0) answer_one(listener, fds);
  }
}

// The caller, as the keeper sees it.
class Caller {
 public:
  explicit Caller(Descriptor socket) : socket_(std::move(socket)) {}
  // False if it is gone.
  bool tell(std::string_view text) const {
    return send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void leave() { socket_.close(); }

 private:
  Descriptor socket_;
};

// Away from the terminal and the caller's folder.
void detach() {
  setsid();
  if (chdir("/") != 0) throw_failed("/");
  const Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd <= 2; ++fd) dup2(nothing.get(), fd);
}

// Inside the sandbox.
void build_and_serve(Caller& caller, const Claim& claim, int listener, const topology::Graph& graph,
                     const netns::Options& options) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);  // before the fabric starts threads
  const Descriptor signals(signalfd(-1, &ends, SFD_CLOEXEC));
  if (signals.get() < 0) throw_failed("signals");
  const netns::Fabric fabric(graph, options);
  if (!caller.tell(kUp)) return;  // who asked for it has been killed, and nobody would know of it
  caller.leave();
  serve(listener, signals.get(), claim, fabric.built());
}

[[noreturn]] void be_keeper(const StateFolder& folder, const Claim& claim, Record& record, Caller& caller,
                            const topology::Graph& graph, const netns::Options& options) {
  bool inside = false;
  try {
    const std::string text = text_of_file(record.topology);
    detach();
    record.keeper = getpid();
    record.since = std::time(nullptr);
    folder.write(claim, record, text);
    const Descriptor listener = listen_at(folder.socket_path(record.name));
    // Outside, the caller is held on to until the end: what comes out of the sandbox first is its message.
    if (!netns::enter_sandbox()) {
      inside = true;
      build_and_serve(caller, claim, listener.get(), graph, options);
    }
  } catch (const std::exception& error) {
    caller.tell(error.what());
  }
  if (!inside) folder.remove(record.name);
  _exit(0);
}

std::string receive_text(int socket) {
  char text[4096];
  for (;;) {
    const ssize_t length = recv(socket, text, sizeof(text), 0);
    if (length >= 0) return {text, static_cast<std::size_t>(length)};
    if (errno != EINTR) throw_failed("keeper");
  }
}

}  // namespace

std::optional<Record> start_keeper(const StateFolder& folder, Record record, const topology::Graph& graph,
                                   const netns::Options& options) {
  Claim claim = folder.claim(record.name);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw_failed("socket pair");
  const Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  const pid_t keeper = fork();
  if (keeper < 0) {
    folder.remove(record.name);
    throw_failed("fork");
  }
  if (keeper == 0) {
    Caller caller(std::move(theirs));
    be_keeper(folder, claim, record, caller, graph, options);
  }
  claim.lock.close();
  theirs.close();
  const std::string answer = receive_text(ours.get());
  if (answer == kUp) return claim.stale;
  while (waitpid(keeper, nullptr, 0) < 0 && errno == EINTR) continue;  // it removes its files
  throw std::runtime_error(answer.empty() ? fmt::format("the keeper of fabric {} was killed", record.name) : answer);
}

}  // namespace plugfest::live
