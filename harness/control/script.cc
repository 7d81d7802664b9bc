#include "harness/control/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"

namespace plugfest::control {

namespace {

[[noreturn]] void throw_stalled(const std::vector<Step*>& steps) {
  std::string what;
  std::size_t not_done = 0;
  for (const Step* step : steps) {
    if (step->done()) continue;
    if (not_done++ == 0) what = step->describe() + " never completed";
  }
  if (not_done > 1) what += fmt::format(", nor did {} more", not_done - 1);
  throw Stalled("", what);
}

}  // namespace

void finish(const std::vector<Step*>& steps, const std::function<void()>& before_round) {
  if (steps.empty()) return;
  const auto is_done = [](const Step* step) { return step->done(); };
  StallLimit limit = steps.front()->stall_limit();
  std::size_t rounds_without_progress = 0;
  while (!std::all_of(steps.begin(), steps.end(), is_done)) {
    if (before_round) before_round();
    bool progress = false;
    for (Step* step : steps) progress = (!step->done() && step->turn()) || progress;
    if (progress) {
      rounds_without_progress = 0;
      limit.restart();
      continue;
    }
    if (limit.expired()) throw_stalled(steps);
    // Yields the processor to the ranks.
    if (++rounds_without_progress > 100) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::pair<SendComm, RecvComm> finish(Connect& connect, Accept& accept) {
  AttemptStep<Connect&> connecting(connect);
  AttemptStep<Accept&> accepting(accept);
  finish({&connecting, &accepting});
  return {connect.comm(), accept.comm()};
}

std::pair<SendComm, RecvComm> finish(Connect&& connect, Accept&& accept) { return finish(connect, accept); }

ProcessFacts settled(Rank rank, const StallLimit& limit, const std::function<bool(const ProcessFacts&)>& holds) {
  StallLimit left = limit.times(0.1);
  for (;;) {
    ProcessFacts facts = rank.process();
    if (holds(facts) || left.expired()) return facts;
  }
}

Connection connect(const Endpoint& from, const Endpoint& to) {
  Rank sender = from.rank;
  Rank receiver = to.rank;
  Listener listener = receiver.listen(to.device);
  auto [send, receive] = finish(sender.connect(from.device, listener.handle()), receiver.accept(listener));
  listener.close();
  return {send, receive};
}

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
  return fmt::format("rank {}: isend of {}, tag {} ({})", comm_.rank_name(), counted(buffer_.slice.size, "byte"), tag_,
                     request_ ? fmt::format("request 0x{:x}", request_.value()) : "not accepted");
}

StallLimit Send::stall_limit() const { return comm_.stall_limit(); }

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
                               ? fmt::format("{}, tag {}", counted(parts_[0].buffer.slice.size, "byte"), parts_[0].tag)
                               : fmt::format("{} buffers", parts_.size());
  return fmt::format("rank {}: irecv of {} ({})", comm_.rank_name(), what,
                     request_ ? fmt::format("request 0x{:x}", request_.value()) : "not accepted");
}

StallLimit Receive::stall_limit() const { return comm_.stall_limit(); }

template <typename Attempt>
std::string AttemptStep<Attempt>::describe() const {
  const bool connects = std::is_same_v<std::remove_reference_t<Attempt>, Connect>;
  return fmt::format("rank {}: {}", attempt_.rank_name(), connects ? "connect" : "accept");
}
template class AttemptStep<Connect>;
template class AttemptStep<Accept>;
}  // namespace plugfest::control
