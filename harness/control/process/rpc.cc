#include "harness/control/process/rpc.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor_passing.h"
#include "fabric/system/file.h"
#include "harness/control/process/errors.h"

namespace plugfest::control {

namespace {

// Time limit of requests that the rank's control thread answers without calling the plugin.
constexpr std::int64_t kControlTimeoutNs = 1'000'000'000;
// Between two looks at a call that does not return.
constexpr std::int64_t kLookInterval = 20'000'000;
// Time in which a signal for all processes reaches each of them.
constexpr std::int64_t kStopNs = 1'000'000'000;

}  // namespace

RpcChannels::RpcChannels(wire::Channel control, wire::Channel main, std::int64_t timeout_ns, int stop_fd)
    : control_(std::move(control)), timeout_ns_(timeout_ns), stop_fd_(stop_fd) {
  threads_.try_emplace(wire::kMainThread, std::move(main));
}

RpcChannels::Thread& RpcChannels::thread(const std::string& name) {
  if (const auto found = threads_.find(name); found != threads_.end()) return found->second;
  auto [ours, theirs] = make_socket_pair();
  if (!control_.send(next_id_++, static_cast<std::uint32_t>(wire::ControlOperation::kStartThread),
                     wire::encode(wire::StartThread{name}), theirs.get()))
    fail_closed();
  // The socket holds requests until the thread runs. check_control reads the answer.
  return threads_.try_emplace(name, wire::Channel(std::move(ours))).first->second;
}

void RpcChannels::send(const std::shared_ptr<PendingCall>& call, wire::Operation operation,
                       std::span<const std::byte> body) {
  call->id = next_id_++;
  Thread& thread = this->thread(call->thread);
  call->sent_ns = now_ns();
  call->progress_ns = clock_->now();
  ++untaken_;
  thread.calls.push_back(call);
  const auto wait_for_room = [&] {
    receive(thread);
    if (call->answered) throw wire::WireError("an answer without a request");
    wait_for(thread, POLLIN | POLLOUT);
  };
  if (!thread.channel.send(call->id, static_cast<std::uint32_t>(operation), body, -1, wait_for_room)) fail_closed();
}

void RpcChannels::wait(PendingCall& call) {
  if (!std::exchange(call.taken, true)) --untaken_;
  while (!call.answered) {
    Thread& thread = this->thread(call.thread);
    wait_for(thread, POLLIN);
    receive(thread);
  }
}

void RpcChannels::receive(const PendingCall& call) { receive(thread(call.thread)); }

bool RpcChannels::is_overdue(const PendingCall& call) {
  const Thread& thread = this->thread(call.thread);
  if (thread.calls.empty()) return false;
  const PendingCall& front = *thread.calls.front();
  return clock_->now() - front.progress_ns > timeout_ns_ || hangs_(front);
}

void RpcChannels::receive(Thread& thread) {
  while (!thread.calls.empty()) {
    std::optional<wire::Frame> frame = thread.channel.poll();
    if (!frame) break;
    process_frame(thread, std::move(*frame));
  }
  if (thread.channel.closed()) fail_closed();
}

void RpcChannels::process_frame(Thread& thread, wire::Frame frame) {
  if (thread.calls.empty() || frame.header.id != thread.calls.front()->id)
    throw wire::WireError("an answer without a request");
  PendingCall& call = *thread.calls.front();
  call.progress_ns = clock_->now();
  const auto kind = static_cast<wire::Answer>(frame.header.kind);
  if (kind == wire::Answer::kProgress) return;
  if (kind != wire::Answer::kDone && kind != wire::Answer::kFailed && kind != wire::Answer::kRefused)
    throw wire::WireError("an answer of an unknown kind");
  call.kind = kind;
  call.body = std::move(frame.body);
  call.answered = true;
  const std::int64_t end_ns = call.progress_ns;
  thread.calls.pop_front();
  // The next call starts now.
  if (!thread.calls.empty()) thread.calls.front()->progress_ns = end_ns;
}

void RpcChannels::wait_for(Thread& thread, short events) {
  const std::shared_ptr<PendingCall> front = thread.calls.front();
  for (;;) {
    // ppoll ignores negative descriptors.
    pollfd fds[3] = {{thread.channel.fd(), events, 0}, {control_.fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    const std::int64_t left = front->progress_ns + timeout_ns_ - clock_->now();
    // Wakes up often enough for the clock to sample which threads wait for a processor, and for hangs_.
    const timespec timeout{0, static_cast<long>(std::clamp<std::int64_t>(left, 0, kLookInterval))};
    const int ready = ppoll(fds, 3, &timeout, nullptr);
    if (ready < 0 && errno != EINTR) throw HarnessError(fmt::format("poll: {}", strerror(errno)));
    if (ready == 0 && (left <= 0 || hangs_(*front))) throw DeadlineExpired{front};
    if (ready <= 0) continue;
    if (fds[2].revents != 0) throw Interrupted();
    if (fds[1].revents != 0) check_control();
    if (fds[0].revents != 0) return;
  }
}

bool RpcChannels::is_stopped() const {
  pollfd fd{stop_fd_, POLLIN, 0};
  return stop_fd_ >= 0 && poll(&fd, 1, static_cast<int>(kStopNs / 1'000'000)) > 0;
}

void RpcChannels::check_control() {
  while (const auto frame = control_.poll()) {
    if (frame->header.kind == static_cast<std::uint32_t>(wire::Answer::kCrash))
      throw CrashReceived{wire::decode<wire::Crash>(frame->body)};
    if (frame->header.kind == static_cast<std::uint32_t>(wire::Answer::kFailed))
      failed_start_ = wire::decode<wire::Text>(frame->body).text;
  }
  if (control_.closed()) throw ChannelClosed{};
}

void RpcChannels::fail_closed() {
  check_control();
  throw ChannelClosed{};
}

void RpcChannels::restart_deadlines() {
  for (auto& [name, thread] : threads_)
    if (!thread.calls.empty()) thread.calls.front()->progress_ns = clock_->now();
}

void RpcChannels::drop_calls() {
  for (auto& [name, thread] : threads_) thread.calls.clear();
}

const PendingCall* RpcChannels::running(std::string_view name) const {
  const auto found = threads_.find(name);
  return found == threads_.end() || found->second.calls.empty() ? nullptr : found->second.calls.front().get();
}

const PendingCall* RpcChannels::any_plugin_call() const {
  for (const auto& [name, thread] : threads_)
    if (!thread.calls.empty() && !thread.calls.front()->text.empty()) return thread.calls.front().get();
  return nullptr;
}

std::string RpcChannels::function_on(const std::string& thread) {
  const std::uint32_t id = next_id_++;
  if (!control_.send(id, static_cast<std::uint32_t>(wire::ControlOperation::kFunctionOn),
                     wire::encode(wire::Text{thread})))
    return "";
  const std::int64_t deadline = now_ns() + kControlTimeoutNs;
  try {
    for (;;) {
      while (const auto frame = control_.poll())
        if (frame->header.id == id) return wire::decode<wire::Text>(frame->body).text;
      const std::int64_t left_ms = (deadline - now_ns()) / 1'000'000;
      pollfd fd{control_.fd(), POLLIN, 0};
      if (left_ms <= 0 || control_.closed() || poll(&fd, 1, static_cast<int>(left_ms)) == 0) return "";
    }
  } catch (const wire::WireError&) {
    return "";
  }
}

}  // namespace plugfest::control
