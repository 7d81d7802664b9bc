#include "harness/control/script.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "harness/control/deviation.h"

namespace plugfest::control {

namespace {

using Clock = std::chrono::steady_clock;

/// Connect or accept of somebody else's as a step.
template <class Attempt>
class Borrowed : public Step {
 public:
  Borrowed(Attempt& attempt, const char* what) : attempt_(attempt), what_(what) {}
  bool turn() override { return attempt_.done() || attempt_.poll(); }
  std::string describe() const override { return fmt::format("rank {}: {}", attempt_.rank_name(), what_); }
  std::int64_t timeout_ns() const override { return attempt_.timeout_ns(); }

 private:
  Attempt& attempt_;
  const char* what_;
};

[[noreturn]] void give_up(const std::vector<Step*>& steps, const std::vector<bool>& done) {
  std::string what;
  std::size_t stuck = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (done[i]) continue;
    if (stuck++ == 0) what = steps[i]->describe() + " never completed";
  }
  if (stuck > 1) what += fmt::format(", nor did {} more", stuck - 1);
  throw Stalled("", what);
}

}  // namespace

void finish(const std::vector<Step*>& steps) {
  std::vector<bool> done(steps.size(), false);
  std::size_t left = steps.size();
  std::size_t fruitless_rounds = 0;
  Clock::time_point since = Clock::now();
  while (left > 0) {
    bool moved = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (done[i] || !steps[i]->turn()) continue;
      done[i] = true;
      moved = true;
      --left;
    }
    if (moved) {
      fruitless_rounds = 0;
      since = Clock::now();
      continue;
    }
    if (Clock::now() - since > std::chrono::nanoseconds(steps.front()->timeout_ns())) give_up(steps, done);
    // Leaves the processor to whoever must act first.
    if (++fruitless_rounds > 100) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::pair<SendComm, RecvComm> finish(Connect& connect, Accept& accept) {
  Borrowed<Connect> connecting(connect, "connect");
  Borrowed<Accept> accepting(accept, "accept");
  finish({&connecting, &accepting});
  return {connect.comm(), accept.comm()};
}

std::pair<SendComm, RecvComm> finish(Connect&& connect, Accept&& accept) { return finish(connect, accept); }

Connection connect(const Endpoint& from, const Endpoint& to) {
  Rank sender = from.rank;
  Rank receiver = to.rank;
  Listener listener = receiver.listen(to.device);
  auto [send, receive] = finish(sender.connect(from.device, listener.handle()), receiver.accept(listener));
  listener.close();
  return {send, receive};
}

// ----------------------------------------------------------------------------------------------------------- send

Send::Send(SendComm comm, Buffer buffer, int tag, PostOptions post, TestOptions test)
    : comm_(std::move(comm)), buffer_(buffer), tag_(tag), post_(post), test_(test), request_(comm_.request(0)) {}

bool Send::post() {
  if (!request_) request_ = comm_.isend(buffer_, tag_, post_);
  return static_cast<bool>(request_);
}

bool Send::turn() {
  if (!request_) {
    post();
    return false;
  }
  return done_ = request_.test(test_);
}

std::string Send::describe() const {
  return fmt::format("rank {}: isend of {} bytes, tag {} ({})", comm_.rank_name(), buffer_.slice.size, tag_,
                     request_ ? fmt::format("request 0x{:x}", request_.value()) : "not accepted");
}

std::int64_t Send::timeout_ns() const { return comm_.timeout_ns(); }

// -------------------------------------------------------------------------------------------------------- receive

Receive::Receive(RecvComm comm, Buffer buffer, int tag, PostOptions post, TestOptions test)
    : Receive(std::move(comm), std::vector<Part>{{buffer, tag}}, post, test) {}

Receive::Receive(RecvComm comm, std::vector<Part> parts, PostOptions post, TestOptions test)
    : comm_(std::move(comm)), parts_(std::move(parts)), post_(post), test_(test), request_(comm_.request(0)) {}

bool Receive::post() {
  if (!request_) request_ = comm_.irecv(parts_, post_);
  return static_cast<bool>(request_);
}

bool Receive::turn() {
  if (!request_) {
    post();
    return false;
  }
  return done_ = request_.test(test_);
}

std::string Receive::describe() const {
  const std::string what = parts_.size() == 1
                               ? fmt::format("{} bytes, tag {}", parts_[0].buffer.slice.size, parts_[0].tag)
                               : fmt::format("{} buffers", parts_.size());
  return fmt::format("rank {}: irecv of {} ({})", comm_.rank_name(), what,
                     request_ ? fmt::format("request 0x{:x}", request_.value()) : "not accepted");
}

std::int64_t Receive::timeout_ns() const { return comm_.timeout_ns(); }

// ----------------------------------------------------------------------------------------------------- connecting

std::string Connecting::describe() const { return fmt::format("rank {}: connect", connect_.rank_name()); }
std::int64_t Connecting::timeout_ns() const { return connect_.timeout_ns(); }
std::string Accepting::describe() const { return fmt::format("rank {}: accept", accept_.rank_name()); }
std::int64_t Accepting::timeout_ns() const { return accept_.timeout_ns(); }

}  // namespace plugfest::control
