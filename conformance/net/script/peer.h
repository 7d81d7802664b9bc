// Lost peers, and TCP connections to a rank from programs other than its peer, such as port scanners.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "conformance/net/script/flow.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

/// Connects twice to every TCP socket that a process listens on: one connection sends `garbage`, the other sends
/// nothing. The connections stay open until destruction.
class UntrustedConnections {
 public:
  /// Enters the network namespace of `process`, if it differs, on a temporary thread. Skips sockets that refuse the
  /// connection. Errors: std::runtime_error when the namespace cannot be entered.
  UntrustedConnections(pid_t process, const std::vector<std::byte>& garbage);
  ~UntrustedConnections();
  UntrustedConnections(const UntrustedConnections&) = delete;
  UntrustedConnections& operator=(const UntrustedConnections&) = delete;

  /// Number of established connections.
  std::size_t count() const { return sockets_.size(); }

 private:
  std::vector<int> sockets_;
};

/// New ranks in which NVIDIA's transports retry a connection twice. By default they do so 34 times, with growing
/// pauses.
RankOptions retrying_briefly();

/// Base of rules whose receiver is lost while sends are in flight. `event`, in all members, says how it was lost: "the
/// receiver was killed".
class LostPeer : public RuleBody {
 protected:
  static constexpr std::size_t kMessages = 4, kSize = 4 << 20;

  /// Connects two fresh ranks and posts receives of `kSize` bytes: `kMessages`, or as many as the plugin accepts before
  /// the sends.
  void connect_ranks(const Environment& environment = {});
  /// Calls isend until it returns a request or an error. Returns nullopt when it returns neither within
  /// `detection_limit`.
  std::optional<PointerOutcome> post_send(std::size_t index);
  /// Tests `requests`, oldest first: the sends of the messages from `first` on. Then sends the other messages that have
  /// a receive, one by one, since a network adapter may acknowledge messages to a dead process. Returns the first error
  /// of isend or test. Errors: `Broken` when all sends complete, or none fails within `detection_limit`.
  Outcome send_until_error(std::string_view event, std::vector<Request> requests = {}, std::size_t first = 0);
  /// Checks the result code after the loss of the peer. [S]: it is ncclSystemError or ncclRemoteError.
  void check_code(const Outcome& outcome, std::string_view event);

  std::optional<Endpoint> sender_, receiver_;
  std::optional<Connection> connection_;
  std::optional<Registered> from_, to_;
  std::vector<Request> receives_;
};

}  // namespace plugfest::conformance
