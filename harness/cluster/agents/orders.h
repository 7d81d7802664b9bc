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

/// Either the answer of an agent or, if there will be none, the reason. Both are empty after `stop`.
struct OrderAnswer {
  std::string text = {};
  std::string failure = {};
};
/// For the agent of `host`: to measure a pair with the agent of `peer`. `text`: a PairOrder (pair.h) as body_of()
/// encodes it; the answer is a PairReport.
struct Order {
  std::string host, peer;
  std::string text;
};

/// Orders that are given together, and their answers.
struct Round {
  std::vector<Order> orders;
  /// How many agents may work at the same time.
  std::size_t width = 0;
  /// Of each order. May be read when `done` is set.
  std::vector<OrderAnswer> answers = std::vector<OrderAnswer>(orders.size());
  std::promise<void> done = {};
  /// How many are not answered, wait for an agent's answer, and have been started.
  std::size_t open = orders.size(), running = 0, started = 0;
};

/// Carries the messages of each order between its two agents. Thread safety: none.
class Orders {
 public:
  /// `loss_of`: why a host is not connected; "": it is. `send`: sends a message to the agent of a host that is.
  Orders(std::function<std::string(const std::string& host)> loss_of,
         std::function<void(const std::string& host, const Message& message)> send)
      : loss_of_(std::move(loss_of)), send_(std::move(send)) {}

  /// Gives a round's orders to the agents, as many as its width permits at once.
  void give(const std::shared_ptr<Round>& round);
  /// Ends a round. What is not answered stays empty.
  void cancel(const std::shared_ptr<Round>& round);
  /// Takes a message from the agent of `host`. Returns whether it is about an order.
  bool process(const std::string& host, Message& message);
  /// Answers all orders of a host that is lost.
  void end_those_of(const std::string& host, const std::string& reason);

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
  /// By Message::rank.
  std::map<std::uint32_t, Given> given_;
  /// Ranks have smaller numbers.
  std::uint32_t next_ = 1u << 31;
};

}  // namespace plugfest::cluster
