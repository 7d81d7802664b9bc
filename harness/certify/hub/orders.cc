#include "harness/certify/hub/orders.h"

#include <fmt/format.h>

#include <utility>

namespace plugfest::certify {

void Orders::give(std::uint32_t number, const std::string& host, const std::string& peer, const std::string& text,
                  std::shared_ptr<std::promise<Hub::Answer>> answer) {
  orders_.emplace(number, Order{host, peer, std::move(answer)});
  send_(host, {.kind = Kind::kMeasure, .rank = number, .body = text});
}

bool Orders::process(const std::string& host, Message& message) {
  const auto found = orders_.find(message.rank);
  if (found == orders_.end()) return false;
  const Order& order = found->second;
  if (message.kind == Kind::kListening && host == order.host) {
    send_(order.peer, {.kind = Kind::kAssist, .rank = message.rank, .body = std::move(message.body)});
  } else if (message.kind == Kind::kMeasured && host == order.host) {
    order.answer->set_value({.text = std::move(message.body)});
    orders_.erase(found);
  } else if (message.kind == Kind::kFailed && (host == order.host || host == order.peer)) {
    order.answer->set_value({.failure = host == order.host ? fmt::format("host {}: {}", host, message.body)
                                                           : fmt::format("host {} cannot join host {}: {}", host,
                                                                         order.host, message.body)});
    orders_.erase(found);
  }
  return true;
}

void Orders::end_those_of(const std::string& host, const std::string& reason) {
  std::erase_if(orders_, [&](const auto& it) {
    const Order& order = it.second;
    if (order.host != host && order.peer != host) return false;
    order.answer->set_value({.failure = reason});
    return true;
  });
}

}  // namespace plugfest::certify
