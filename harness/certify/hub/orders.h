// The orders of the controller: pairs that two agents measure by themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>

#include "harness/certify/hub/hub.h"
#include "harness/certify/wire/link.h"

namespace plugfest::certify {

/// Carries the messages of each order between its two agents. Thread safety: none.
class Orders {
 public:
  /// `send`: sends a message to the agent of a host, or does nothing if that host is not connected.
  explicit Orders(std::function<void(const std::string& host, Message message)> send) : send_(std::move(send)) {}

  /// Gives the agent of `host` an order. `number`: of no other order and no rank. `text`: a PairOrder.
  void give(std::uint32_t number, const std::string& host, const std::string& peer, const std::string& text,
            std::shared_ptr<std::promise<Hub::Answer>> answer);
  /// Takes a message from the agent of `host`. Returns whether it is about an order.
  bool process(const std::string& host, Message& message);
  /// Answers all orders of a host that is lost.
  void end_those_of(const std::string& host, const std::string& reason);

 private:
  struct Order {
    std::string host, peer;
    std::shared_ptr<std::promise<Hub::Answer>> answer;
  };

  const std::function<void(const std::string&, Message)> send_;
  std::map<std::uint32_t, Order> orders_;
};

}  // namespace plugfest::certify
