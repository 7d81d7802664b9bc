#include "fabric/rdma_cm/poller.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <thread>

#include "fabric/system/blocked_signals.h"

namespace plugfest::rdma_cm {
namespace {

void control(int epoll, int operation, int socket, std::uint32_t events) {
  epoll_event event = {.events = events, .data = {.fd = socket}};
  if (::epoll_ctl(epoll, operation, socket, &event) != 0) throw_errno("change the sockets of an epoll descriptor");
}

}  // namespace

Poller::Poller(std::mutex& lock) : lock_(lock), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("create an epoll descriptor");
  const BlockedSignals blocked;
  std::thread([this] { run(); }).detach();
}

void Poller::add(int socket, std::uint32_t events, Handler handler) {
  std::shared_ptr<Handler> shared = std::make_shared<Handler>(std::move(handler));
  control(epoll_.get(), EPOLL_CTL_ADD, socket, events);
  try {
    handlers_[socket] = std::move(shared);
  } catch (...) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
    throw;
  }
}

void Poller::change(int socket, std::uint32_t events) { control(epoll_.get(), EPOLL_CTL_MOD, socket, events); }

void Poller::remove(int socket) {
  if (handlers_.erase(socket) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void Poller::run() {
  pthread_setname_np(pthread_self(), "rdma-cm");
  while (true) {
    // One event at a time: with more, a handler could remove a socket whose event is among them.
    epoll_event event = {};
    const int ready = ::epoll_wait(epoll_.get(), &event, 1, -1);
    if (ready < 0 && errno != EINTR) return;  // the program has closed all its descriptors
    if (ready != 1) continue;
    const std::lock_guard guard(lock_);
    const auto found = handlers_.find(event.data.fd);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;  // it may remove itself
    try {
      (*handler)(event.events);
    } catch (const std::exception&) {  // for example, no memory
      end(event.data.fd, handler);
    }
  }
}

// Both ends of a connection notice its end; the handler reports it. A timer, which is no socket, never expires again.
void Poller::end(int socket, const std::shared_ptr<Handler>& handler) {
  const auto found = handlers_.find(socket);
  if (found == handlers_.end() || found->second != handler) return;  // it has removed itself
  if (::shutdown(socket, SHUT_RDWR) != 0) remove(socket);
}

Timer::Timer(Poller& poller, std::function<void()> expired)
    : poller_(poller), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) throw_errno("create a timer");
  poller_.add(timer_.get(), EPOLLIN, [timer = timer_.get(), expired = std::move(expired)](std::uint32_t) {
    std::uint64_t expirations = 0;
    if (::read(timer, &expirations, sizeof(expirations)) == sizeof(expirations)) expired();
  });
}

void Timer::start(std::chrono::milliseconds delay) {
  itimerspec when = {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(delay);
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec = std::chrono::nanoseconds(delay - seconds).count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);  // fails only for an invalid argument
}

}  // namespace plugfest::rdma_cm
