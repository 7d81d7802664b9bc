// Messages under way, driven the way NCCL's progress loop drives them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "harness/control/connection.h"

namespace plugfest::conformance {

/// Posts sends and receives on any number of comms and tests them until all are done.
///
/// Sends of one comm and tag, and receives of one comm, form a queue. Each round gives every queue one step, in the
/// order in which the queues first appeared: post its next operation while fewer than `window` are out, else test its
/// oldest. "Not now" (NULL) is tried again next round and holds up no other queue. So nothing here depends on when a
/// plugin accepts a send, and one thread serves any number of comms.
///
/// Errors of every member: those of the calls; `Broken` when no queue moves for `patience`.
class Traffic {
 public:
  /// An operation's place in `outcome`.
  using Ticket = std::size_t;

  explicit Traffic(std::chrono::duration<double> patience, std::size_t window = 8)
      : patience_(patience), window_(window) {}

  /// How requests are tested from here on.
  void test_with(const control::TestOptions& options) { test_ = options; }

  Ticket send(const control::SendComm& comm, const control::Buffer& buffer, int tag = 0,
              const control::PostOptions& options = {});
  Ticket receive(const control::RecvComm& comm, const std::vector<control::Part>& parts,
                 const control::PostOptions& options = {});
  Ticket receive(const control::RecvComm& comm, const control::Buffer& buffer, int tag = 0,
                 const control::PostOptions& options = {}) {
    return receive(comm, std::vector<control::Part>{{buffer, tag}}, options);
  }
  /// An operation that the plugin has taken already.
  Ticket posted_send(const control::SendComm& comm, const control::Request& request, int tag = 0);
  Ticket posted_receive(const control::RecvComm& comm, const control::Request& request);

  /// One step of every queue; true when any moved.
  bool step();
  /// Steps until `ticket` is posted, is done, or everything is done.
  void until_posted(Ticket ticket);
  void until_done(Ticket ticket);
  void finish();
  /// Gives the queues of `comm` no steps until they are resumed.
  void pause(const control::RemoteObject& comm) { set_paused(comm, true); }
  void resume(const control::RemoteObject& comm) { set_paused(comm, false); }

  bool done(Ticket ticket) const { return operations_.at(ticket).state == State::kDone; }
  /// The last test of a done operation.
  const control::TestOutcome& outcome(Ticket ticket) const { return operations_.at(ticket).outcome; }
  /// Bytes that a done operation reported for its `part`.
  int size(Ticket ticket, std::size_t part = 0) const { return outcome(ticket).sizes.at(part); }

 private:
  enum class State { kWaiting, kPosted, kDone };
  struct Operation {
    std::function<control::Request()> post = {};
    std::string what;
    State state = State::kWaiting;
    control::Request request = control::Request{nullptr, "", 0};
    control::TestOutcome outcome = {};
  };
  /// What runs in order: sends of one tag, or the receives of a comm.
  struct Queue {
    std::string rank;
    std::uint64_t comm = 0;
    std::int64_t lane = 0;
    bool paused = false;
    std::deque<Ticket> waiting = {};
    std::deque<Ticket> posted = {};
  };
  static constexpr std::int64_t kReceives = INT64_MIN;

  Queue& queue(const control::RemoteObject& comm, std::int64_t lane);
  Ticket add(Operation operation);
  void set_paused(const control::RemoteObject& comm, bool paused);
  bool step(Queue& queue);
  /// Steps until `reached`; `Broken` when nothing moves for too long.
  template <typename Condition>
  void step_until(Condition reached);
  [[noreturn]] void give_up() const;

  std::chrono::duration<double> patience_;
  std::size_t window_;
  control::TestOptions test_;
  std::vector<Operation> operations_;
  std::deque<Queue> queues_;
};

}  // namespace plugfest::conformance
