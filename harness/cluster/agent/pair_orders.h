// The orders of an agent: pairs that it measures, and pairs that another agent measures with it.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>

#include "fabric/system/file.h"
#include "harness/cluster/measure/delegation.h"
#include "harness/cluster/wire/link.h"

namespace plugfest::cluster {

/// Each order is carried out in a thread. Thread safety: none.
class PairOrders {
 public:
  /// Sends an answer to the order with this number.
  using Answer = std::function<void(Kind kind, std::uint32_t order, std::string body)>;

  /// `token`: the controller's. `name` and `version` as for run_agent.
  PairOrders(const Token& token, std::string name, std::string version, Answer answer);
  /// Interrupts all orders, and waits for their threads.
  ~PairOrders();
  PairOrders(const PairOrders&) = delete;
  PairOrders& operator=(const PairOrders&) = delete;

  /// Becomes readable when `report` has something to report.
  int wake_fd() const { return wake_.get(); }
  /// Takes kMeasure: measures a pair, for which the other agent connects to `address`.
  void measure(const Message& message, const std::string& address);
  /// Takes kAssist: joins the agent that measures a pair, beside the controller.
  void assist(const Message& message);
  /// Answers the orders that have ended.
  void report();

 private:
  const Token token_;
  const std::string name_;
  const std::string version_;
  const Answer answer_;
  const Descriptor wake_;
  const Descriptor stopping_;
  /// By the numbers of orders.
  std::map<std::uint32_t, std::unique_ptr<Delegation>> measured_;
  std::map<std::uint32_t, std::future<std::string>> assisted_;
};

}  // namespace plugfest::cluster
