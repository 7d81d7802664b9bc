#include "conformance/net/script/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

Traffic::Queue& Traffic::queue(const RemoteObject& comm, std::int64_t lane) {
  for (Queue& queue : queues_)
    if (queue.lane == lane && queue.of(comm)) return queue;
  queues_.push_back({.rank = comm.rank_name(), .comm = comm.value(), .lane = lane});
  return queues_.back();
}

Traffic::Ticket Traffic::add(Operation operation) {
  operations_.push_back(std::move(operation));
  return operations_.size() - 1;
}

Traffic::Ticket Traffic::send(const SendComm& comm, const Buffer& buffer, int tag, const PostOptions& options) {
  const Ticket ticket = add({.post = [=] { return comm.isend(buffer, tag, options); },
                             .what = fmt::format("rank {}: isend #{} of {}, tag {}", comm.rank_name(),
                                                 operations_.size(), counted(buffer.slice.size, "byte"), tag)});
  queue(comm, tag).waiting.push_back(ticket);
  return ticket;
}

Traffic::Ticket Traffic::receive(const RecvComm& comm, const std::vector<Part>& parts, const PostOptions& options) {
  const Ticket ticket = add({.post = [=] { return comm.irecv(parts, options); },
                             .what = fmt::format("rank {}: irecv #{} of {} buffer{}", comm.rank_name(),
                                                 operations_.size(), parts.size(), parts.size() == 1 ? "" : "s")});
  queue(comm, kReceives).waiting.push_back(ticket);
  return ticket;
}

Traffic::Ticket Traffic::posted_send(const SendComm& comm, const Request& request, int tag) {
  const Ticket ticket =
      add({.what = fmt::format("rank {}: isend #{}, tag {}", comm.rank_name(), operations_.size(), tag),
           .state = State::kPosted,
           .request = request});
  queue(comm, tag).posted.push_back(ticket);
  return ticket;
}

Traffic::Ticket Traffic::posted_receive(const RecvComm& comm, const Request& request) {
  const Ticket ticket = add({.what = fmt::format("rank {}: irecv #{}", comm.rank_name(), operations_.size()),
                             .state = State::kPosted,
                             .request = request});
  queue(comm, kReceives).posted.push_back(ticket);
  return ticket;
}

bool Traffic::step(Queue& queue) {
  if (!queue.waiting.empty() && queue.posted.size() < max_in_flight_) {
    const Ticket ticket = queue.waiting.front();
    Operation& operation = operations_[ticket];
    operation.request = operation.post();
    if (operation.request) {
      operation.state = State::kPosted;
      queue.waiting.pop_front();
      queue.posted.push_back(ticket);
      return true;
    }
  }
  if (queue.posted.empty()) return false;
  Operation& oldest = operations_[queue.posted.front()];
  if (!oldest.request.test(test_)) return false;
  oldest.outcome = oldest.request.last();
  oldest.state = State::kDone;
  queue.posted.pop_front();
  return true;
}

bool Traffic::step() {
  bool progressed = false;
  for (Queue& queue : queues_) progressed = (!queue.paused && step(queue)) || progressed;
  return progressed;
}

template <typename Condition>
void Traffic::step_until(Condition reached) {
  limit_.restart();
  while (!reached())
    if (step())
      limit_.restart();
    else if (limit_.expired())
      report_stall();
    else
      std::this_thread::yield();
}

template <typename Selected>
void Traffic::post_selected(Selected selected) {
  auto all_posted = [&] {
    return std::all_of(queues_.begin(), queues_.end(),
                       [&](const Queue& queue) { return !selected(queue) || queue.waiting.empty(); });
  };
  for (int deferred = 0; deferred < 100 && !all_posted();) deferred = step() ? 0 : deferred + 1;
}

void Traffic::post_receives() {
  post_selected([](const Queue& queue) { return queue.lane == kReceives; });
}

void Traffic::post(const RemoteObject& comm) {
  post_selected([&](const Queue& queue) { return queue.of(comm); });
}

std::size_t Traffic::in_flight(const RemoteObject& comm) const {
  std::size_t count = 0;
  for (const Queue& queue : queues_) count += queue.of(comm) ? queue.posted.size() : 0;
  return count;
}

void Traffic::until_done(Ticket ticket) {
  step_until([&] { return done(ticket); });
}

void Traffic::finish() {
  step_until([this] {
    return std::all_of(operations_.begin(), operations_.end(),
                       [](const Operation& operation) { return operation.state == State::kDone; });
  });
}

void Traffic::set_paused(const RemoteObject& comm, bool paused) {
  for (Queue& queue : queues_)
    if (queue.of(comm)) queue.paused = paused;
}

void Traffic::abandon(const RemoteObject& comm) {
  for (Queue& queue : queues_) {
    if (!queue.of(comm)) continue;
    for (const auto* tickets : {&queue.waiting, &queue.posted})
      for (const Ticket ticket : *tickets) operations_[ticket].state = State::kDone;
    queue.waiting.clear();
    queue.posted.clear();
  }
}

void Traffic::report_stall() const {
  std::string message;
  int named = 0;
  for (const Operation& operation : operations_) {
    if (operation.state == State::kDone || ++named > 6) continue;
    message += fmt::format("{}{} was not {}", named == 1 ? "" : "\n", operation.what,
                           operation.state == State::kPosted ? "completed" : "accepted");
    // Overviews show only the first line.
    if (named == 1) message += fmt::format(": no operation made progress for {} s", limit_.seconds());
  }
  if (named > 6) message += fmt::format("\nand {} more", named - 6);
  throw Broken(message);
}

}  // namespace plugfest::conformance
