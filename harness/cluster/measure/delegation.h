// A pair that the agent of one of its hosts measures, so that the controller sends an order and gets a report, and no
// call of a rank passes through it.
//
// The agent is then a small controller: it starts the rank of its own NIC itself, and the rank of the other NIC through
// the agent of the other host, which joins it for this pair.
#pragma once

#include <atomic>
#include <future>
#include <string>

#include "fabric/system/file.h"
#include "harness/cluster/hub/hub.h"
#include "harness/cluster/measure/pair.h"

namespace plugfest::cluster {

struct PairOrder {
  /// Names of NICs: "h1.mlx5_0". The first one is of the host that measures.
  std::string one, other;
  control::Subject subject = {};
  PairSettings settings = {};
  /// As control::Limits and HubOptions.
  double call_seconds = 10, host_seconds = 20;

  /// JSON.
  std::string text() const;
  /// Errors: std::exception.
  static PairOrder parse(const std::string& text);
};

struct PairReport {
  PairOutcome outcome = {};
  /// The other host, or the way to it, was lost: nothing was found out about the pair.
  bool lost = false;

  /// JSON.
  std::string text() const;
  /// Errors: std::exception.
  static PairReport parse(const std::string& text);
};

/// The measurement of one pair, in a thread.
class Delegation {
 public:
  /// Listens on `address`. `stop_fd`: becomes readable when this process ends. `wake_fd`: an eventfd that is written
  /// when the report is there. Errors: std::runtime_error.
  Delegation(const std::string& address, const Token& token, PairOrder order, int stop_fd, int wake_fd);

  /// Where the other host's agent joins.
  const Meeting& meeting() const { return hub_.meeting(); }
  bool done() const { return done_; }
  /// Waits for it.
  PairReport report() { return report_.get(); }

 private:
  PairReport run();

  const PairOrder order_;
  const int stop_fd_;
  Hub hub_;
  std::atomic<bool> done_ = false;
  std::future<PairReport> report_;
};

}  // namespace plugfest::cluster
