#include "plugins/mesh/relay/relay.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <exception>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr int kTickMs = 20;  // while a tunnel is being opened
constexpr std::int64_t kAskAgainMs = 100;

// Blocks all signals while it exists. A thread that starts then also blocks them: signals are for the threads of the
// program.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Relay::Relay(std::vector<LocalAddress> addresses, const Options& options)
    : addresses_(std::move(addresses)),
      key_(relay_key(options.secret)),
      wait_ms_(std::int64_t{1000} * options.wait_s),
      finder_(addresses_, key_, options.port),
      server_(addresses_, key_, finder_),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw system_failure("create an event descriptor for the relay");
  {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  finder_.ask();
}

Relay::~Relay() {
  eventfd_write(wake_.fd(), 1);
  thread_.join();
  const TunnelServer::Counters& served = server_.counters();
  MESH_INFO("relay: tunnels opened: %llu, requests refused: %llu, bytes copied: %llu",
            static_cast<unsigned long long>(served.tunnels), static_cast<unsigned long long>(served.refused),
            static_cast<unsigned long long>(served.bytes));
}

void Relay::run() {
  std::vector<pollfd> waits;
  for (;;) {
    waits = {{wake_.fd(), POLLIN, 0}, {finder_.query_fd(), POLLIN, 0}, {finder_.answer_fd(), POLLIN, 0}};
    const bool opening = server_.add_waits(waits);
    ::poll(waits.data(), waits.size(), opening ? kTickMs : -1);
    if (waits[0].revents != 0) return;
    try {
      finder_.serve(server_.port());
      server_.serve();
    } catch (const std::exception& error) {
      MESH_INFO("relay: %s", error.what());
    }
  }
}

RelaySearch::RelaySearch(std::shared_ptr<Relay> relay, std::vector<Address> addresses, std::uint16_t port)
    : relay_(std::move(relay)),
      request_{.hops = 1, .port = port, .addresses = std::move(addresses)},
      since_ms_(coarse_now_ms()) {}

bool RelaySearch::step() {
  const std::int64_t now = coarse_now_ms();
  if (!opener_) {
    const bool late = now - since_ms_ > relay_->wait_ms();
    if (now - asked_ms_ >= kAskAgainMs) {
      relay_->finder().ask();
      asked_ms_ = now;
    }
    std::vector<Neighbor> neighbors = relay_->finder().neighbors();
    if (late) return false;
    if (neighbors.empty() || now < not_before_ms_) return true;
    opener_.emplace(relay_->key(), request_, std::move(neighbors));
  }
  if (opener_->step()) return true;
  socket_ = opener_->take();
  opener_.reset();
  if (socket_) return false;
  if (request_.hops < kMaxHops) {
    ++request_.hops;
  } else {
    request_.hops = 1;
    not_before_ms_ = now + kAskAgainMs;
  }
  return true;
}

}  // namespace mesh
