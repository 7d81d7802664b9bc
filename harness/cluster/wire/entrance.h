// Where agents connect: to the controller, or to the agent that carries their messages.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "harness/cluster/wire/link.h"

namespace plugfest::cluster {

/// What an agent says first, in kHello.
struct Hello {
  std::string name, version;
  /// Distinguishes this agent from another one of the same name.
  std::string instance = {};
  /// Where other agents can connect to it; port 0: nowhere.
  std::string address = {};
  std::uint16_t port = 0;
  /// As kRedirect told it; 0: it connects to the controller.
  std::uint32_t number = 0;
  /// It could not connect where kRedirect told it, or has lost that connection.
  bool stays = false;
  /// How many messages of the controller have arrived.
  std::uint64_t received = 0;

  /// JSON.
  std::string text() const;
  /// Errors: std::exception.
  static Hello parse(const std::string& text);
};

/// Accepts connections, and keeps each until its peer has proved that it knows the token and has said who it is. Thread
/// safety: none.
class Entrance {
 public:
  /// Takes a connection with an agent, and what came after its kHello. Returns false to refuse it.
  using Admit = std::function<bool(std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest)>;

  /// Listens on an IPv4 address. Errors: std::runtime_error.
  Entrance(const std::string& address, const Token& token);

  std::uint16_t port() const { return port_; }
  /// Connections that did not prove to know the token, or were not admitted.
  std::uint64_t refused() const { return refused_; }

  /// Appends what to poll.
  void add_to(std::vector<pollfd>& polled) const;
  /// Reads, writes and accepts as the descriptors from `next` on permit, which `add_to` appended, and moves `next`
  /// behind them.
  void serve(std::vector<pollfd>::const_iterator& next, const Admit& admit);

 private:
  struct Stranger {
    std::unique_ptr<Link> link;
    Nanoseconds deadline_ns = 0;
  };

  void accept_all();

  const Token token_;
  Descriptor listener_;
  std::uint16_t port_ = 0;
  std::list<Stranger> strangers_;
  std::uint64_t refused_ = 0;
};

}  // namespace plugfest::cluster
