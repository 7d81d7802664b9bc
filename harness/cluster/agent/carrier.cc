#include "harness/cluster/agent/carrier.h"

#include <algorithm>
#include <utility>

namespace plugfest::cluster {
namespace {

/// Messages of other agents wait for so long, so that many of them go in one batch. A report of a pair may wait longer
/// for those of other pairs, since a round ends with the last one.
constexpr Nanoseconds kHold = 50'000'000;
constexpr Nanoseconds kHoldReport = 500'000'000;
/// Of messages that wait for the controller.
constexpr std::size_t kMostUnsent = 4u << 20;

/// How long a message that an agent carries for another one may wait for others.
Nanoseconds hold_of(Kind kind) {
  switch (kind) {
    case Kind::kHello:
    case Kind::kPong:
    case Kind::kFacts:
    case Kind::kListening:
    case Kind::kWaited:
      return kHold;
    case Kind::kMeasured:
      return kHoldReport;
    default:
      return 0;
  }
}

}  // namespace

void Carrier::add_to(std::vector<pollfd>& polled, const Link& link) const {
  const bool may_read = link.unsent_bytes() < kMostUnsent;
  for (const auto& [number, carried] : links_) polled.push_back(carried->polled(may_read));
  entrance_.add_to(polled);
}

void Carrier::serve(std::vector<pollfd>::const_iterator& next, Link& link, bool admits) {
  for (auto it = links_.begin(); it != links_.end();) {
    const auto& [number, carried] = *it;
    if ((*next++).revents != 0) {
      for (Message& message : carried->receive()) carry(number, std::move(message), link);
    }
    if (carried->failure().empty()) {
      ++it;
      continue;
    }
    carry(number, {.kind = Kind::kGone, .body = carried->failure()}, link);
    it = links_.erase(it);
  }
  entrance_.serve(next, [&](std::unique_ptr<Link> own, const Hello& hello, std::vector<Message> rest) {
    if (hello.number == 0 || !admits || !links_.emplace(hello.number, std::move(own)).second) return false;
    carry(hello.number, {.kind = Kind::kHello, .body = hello.text()}, link);
    for (Message& message : rest) carry(hello.number, std::move(message), link);
    return true;
  });
}

void Carrier::carry(std::uint32_t number, Message message, Link& link) {
  message.host = number;
  link.gather(message);
  if (message.kind == Kind::kMeasured || message.kind == Kind::kFailed) orders_.erase(message.rank);
  if (message.kind == Kind::kGone) std::erase_if(orders_, [&](auto& it) { return it.second == number; });
  const bool is_last = message.kind == Kind::kMeasured && orders_.empty();
  const Nanoseconds due = now_ns() + (is_last ? 0 : hold_of(message.kind));
  due_ns_ = due_ns_ == 0 ? due : std::min(due_ns_, due);
}

void Carrier::pass_on(Message message) {
  const auto found = links_.find(std::exchange(message.host, 0));
  if (found == links_.end()) return;
  if (message.kind == Kind::kMeasure) orders_.emplace(message.rank, found->first);
  found->second->gather(message);
}

void Carrier::flush(Link& link) {
  for (const auto& [number, carried] : links_) carried->flush();
  if (now_ns() < due_ns_ && !link.has_unsent()) return;
  due_ns_ = 0;
  link.flush();
}

void Carrier::finish() {
  const Nanoseconds deadline = now_ns() + 1'000'000'000;
  for (const auto& [number, carried] : links_) carried->flush_until(deadline);
}

}  // namespace plugfest::cluster
