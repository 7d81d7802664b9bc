// The agents whose messages an agent carries between them and the controller.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "harness/cluster/wire/entrance.h"
#include "harness/cluster/wire/link.h"

namespace plugfest::cluster {

/// `link`: to the controller. Thread safety: none.
class Carrier {
 public:
  /// Listens on an IPv4 address. Errors: std::runtime_error.
  Carrier(const std::string& address, const Token& token) : entrance_(address, token) {}

  std::uint16_t port() const { return entrance_.port(); }
  /// When to send on what has come from the agents; 0: nothing has.
  Nanoseconds due_ns() const { return due_ns_; }

  /// Appends what to poll.
  void add_to(std::vector<pollfd>& polled, const Link& link) const;
  /// Reads and accepts as the descriptors from `next` on permit, which `add_to` appended, and moves `next` behind them.
  /// Passes on what agents have sent. `admits`: whether it takes further agents.
  void serve(std::vector<pollfd>::const_iterator& next, Link& link, bool admits);
  /// Passes on what the controller has sent to an agent.
  void pass_on(Message message);
  /// Sends what has been passed on, to the controller when it is due.
  void flush(Link& link);
  /// Waits a second at most for what is not sent to the agents.
  void finish();

 private:
  void carry(std::uint32_t number, Message message, Link& link);

  Entrance entrance_;
  /// By Message::host.
  std::map<std::uint32_t, std::unique_ptr<Link>> links_;
  Nanoseconds due_ns_ = 0;
  /// Orders whose report has not come from the agents: the order's number, and the agent's.
  std::map<std::uint32_t, std::uint32_t> orders_;
};

}  // namespace plugfest::cluster
