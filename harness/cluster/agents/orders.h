// The orders of the controller: pairs that two agents measure by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/cluster/agents/link.h"

namespace plugfest::cluster {

/// Either the answer of an agent or the reason why there is none. Both are empty after `stop`.
struct OrderAnswer {
  std::string text = {};
  std::string failure = {};
};
/// Tells the agent of `host` to measure a pair with the agent of `peer`. `text`: a PairOrder (pair.h) as body_of()
/// encodes it; the answer is a PairReport.
struct Order {
  std::string host, peer;
  std::string text;
};

/// Orders that are given together, and their answers.
struct Round {
  std::vector<Order> orders;
  /// Maximum number of agents that work at the same time.
  std::size_t width = 0;
  /// The answer of each order. May be read when `done` is set.
  std::vector<OrderAnswer> answers = std::vector<OrderAnswer>(orders.size());
  std::promise<void> done = {};
  /// Number of orders that are not answered, that an agent is working on, and that have been started.
  std::size_t open = orders.size(), running = 0, started = 0;
};

/// Carries the messages of each order between its two agents. Thread safety: none.
class Orders {
 public:
  /// `loss_of`: why a host is not connected; "": it is connected. `send`: sends a message to the agent of a connected
  /// host.
  Orders(std::function<std::string(const std::string& host)> loss_of,
         std::function<void(const std::string& host, const Message& message)> send)
      : loss_of_(std::move(loss_of)), send_(std::move(send)) {}

  /// Gives a round's orders to the agents, at most `width` at the same time.
  void give(const std::shared_ptr<Round>& round);
  /// Ends a round. Missing answers stay empty.
  void cancel(const std::shared_ptr<Round>& round);
  /// Processes a message from the agent of `host`. Returns whether it is about an order.
  bool process(const std::string& host, Message& message);
  /// Answers all orders of a lost host.
  void end_orders_of(const std::string& host, const std::string& reason);

 private:
  struct Given {
    std::shared_ptr<Round> round;
    std::size_t index = 0;
    const Order& order() const { return round->orders[index]; }
  };

  void start_more(const std::shared_ptr<Round>& round);
  static void answer(Round& round, std::size_t index, OrderAnswer answer);
  void finish(std::map<std::uint32_t, Given>::iterator given, OrderAnswer answer);

  const std::function<std::string(const std::string&)> loss_of_;
  const std::function<void(const std::string&, const Message&)> send_;
  /// The orders in progress, by Message::rank.
  std::map<std::uint32_t, Given> given_;
  /// Numbers of orders; numbers of ranks are smaller.
  std::uint32_t next_ = 1u << 31;
};

}  // namespace plugfest::cluster
