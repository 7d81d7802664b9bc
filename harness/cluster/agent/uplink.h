// The connection through which an agent reaches the controller: its own, or one with the agent that carries its
// messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fabric/system/clock.h"
#include "harness/cluster/agent/agent.h"
#include "harness/cluster/wire/link.h"
#include "harness/cluster/wire/stream.h"

namespace plugfest::cluster {

/// Thread safety: none.
class Uplink {
 public:
  /// Connects to the controller. `name` and `version` as for run_agent. Errors: std::runtime_error.
  Uplink(const Meeting& meeting, std::string name, std::string version);

  Link& link() { return *link_; }
  Stream& stream() { return stream_; }
  /// The address over which this host reaches the controller, and other agents this host. Errors: std::runtime_error.
  std::string own_address() const;
  /// Others whose messages this agent may carry connect to this port of own_address().
  void set_port(std::uint16_t port) { port_ = port; }
  /// Whether another agent carries the messages of this one.
  bool is_carried() const { return number_ != 0; }

  /// Reads what has arrived. `process`: takes each message but those about the connection itself.
  void serve(const std::function<void(Message)>& process);
  /// Connects to the controller when the agent that carries the messages is lost. Errors: std::runtime_error when the
  /// controller is.
  void watch();

 private:
  void dial(const Meeting& meeting, std::uint32_t number);
  void dial_controller();
  void greet();
  bool take(const Message& message);
  void acknowledge() const;
  void welcome(const nlohmann::json& words);
  void redirect(const nlohmann::json& words);

  const Meeting meeting_;
  const std::string name_;
  const std::string version_;
  const std::string instance_;
  std::unique_ptr<Link> link_;
  Stream stream_;
  std::uint16_t port_ = 0;
  /// As in Hello.
  std::uint32_t number_ = 0;
  bool stays_ = false;
  bool greeted_ = false;
  Nanoseconds heard_ns_ = 0;
  Nanoseconds longest_silence_ = 0;
};

}  // namespace plugfest::cluster
