#include "harness/cluster/agents/orders.h"

#include <fmt/format.h>

#include <utility>

namespace plugfest::cluster {

void Orders::give(const std::shared_ptr<Round>& round) {
  if (round->orders.empty()) round->done.set_value();
  start_more(round);
}

void Orders::start_more(const std::shared_ptr<Round>& round) {
  while (round->started < round->orders.size() && round->running < round->width) {
    const std::size_t index = round->started++;
    const Order& order = round->orders[index];
    std::string loss = loss_of_(order.host);
    if (loss.empty()) loss = loss_of_(order.peer);
    if (!loss.empty()) {
      answer(*round, index, {.failure = std::move(loss)});
      continue;
    }
    ++round->running;
    given_.emplace(next_, Given{round, index});
    send_(order.host, {.kind = Kind::kMeasure, .rank = next_, .body = order.text});
    ++next_;
  }
}

void Orders::answer(Round& round, std::size_t index, OrderAnswer answer) {
  round.answers[index] = std::move(answer);
  if (--round.open == 0) round.done.set_value();
}

void Orders::finish(std::map<std::uint32_t, Given>::iterator given, OrderAnswer answer) {
  const auto [round, index] = std::exchange(given->second, {});
  given_.erase(given);
  --round->running;
  Orders::answer(*round, index, std::move(answer));
  start_more(round);
}

void Orders::cancel(const std::shared_ptr<Round>& round) {
  if (round->open == 0) return;
  std::erase_if(given_, [&](const auto& given) { return given.second.round == round; });
  round->open = 0;
  round->done.set_value();
}

bool Orders::process(const std::string& host, Message& message) {
  const auto found = given_.find(message.rank);
  if (found == given_.end()) return false;
  const Order& order = found->second.order();
  if (message.kind == Kind::kListening && host == order.host) {
    send_(order.peer, {.kind = Kind::kAssist, .rank = message.rank, .body = std::move(message.body)});
  } else if (message.kind == Kind::kMeasured && host == order.host) {
    finish(found, {.text = std::move(message.body)});
  } else if (message.kind == Kind::kFailed && (host == order.host || host == order.peer)) {
    finish(found, {.failure = host == order.host
                                  ? fmt::format("host {}: {}", host, message.body)
                                  : fmt::format("host {} cannot join host {}: {}", host, order.host, message.body)});
  }
  return true;
}

void Orders::end_orders_of(const std::string& host, const std::string& reason) {
  std::vector<std::uint32_t> ended;
  for (const auto& [number, given] : given_)
    if (given.order().host == host || given.order().peer == host) ended.push_back(number);
  for (const std::uint32_t number : ended) finish(given_.find(number), {.failure = reason});
}

}  // namespace plugfest::cluster
