// Drives messages in flight as NCCL's progress loop does.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/connection.h"

namespace plugfest::conformance {

/// Posts sends and receives on any number of comms and tests them until all are done.
///
/// The sends of one comm and tag form a queue, and so do the receives of one comm. Each round gives every queue one
/// step, in the order in which the queues were created: it posts the queue's next operation while fewer than
/// `max_in_flight` are posted, and otherwise tests the oldest one. An operation that the plugin defers (NULL) is tried
/// again in the next round and blocks no other queue, so the result does not depend on when a plugin accepts a send.
///
/// Errors of every member: whatever the calls throw; `Broken` when no queue makes progress until `limit` expires.
/// Not thread-safe.
class Traffic {
 public:
  using Ticket = std::size_t;

  explicit Traffic(const control::StallLimit& limit, std::size_t max_in_flight = 8)
      : limit_(limit), max_in_flight_(max_in_flight) {}

  void limit_in_flight(std::size_t count) { max_in_flight_ = count; }
  /// Uses `options` in later tests.
  void test_with(const control::TestOptions& options) { test_ = options; }

  Ticket send(const control::SendComm& comm, const control::Buffer& buffer, int tag = 0,
              const control::PostOptions& options = {});
  Ticket receive(const control::RecvComm& comm, const std::vector<control::Part>& parts,
                 const control::PostOptions& options = {});
  Ticket receive(const control::RecvComm& comm, const control::Buffer& buffer, int tag = 0,
                 const control::PostOptions& options = {}) {
    return receive(comm, std::vector<control::Part>{{buffer, tag}}, options);
  }
  /// Adds an operation that the plugin has already accepted.
  Ticket posted_send(const control::SendComm& comm, const control::Request& request, int tag = 0);
  Ticket posted_receive(const control::RecvComm& comm, const control::Request& request);

  /// Gives every queue one step. Returns whether any operation was posted or completed.
  bool step();
  /// Steps until all receives are posted, or the plugin has deferred the next one of each comm in 100 rounds, as it may
  /// until the sender calls isend.
  void post_receives();
  /// Steps until all operations of one comm are posted, or the plugin has deferred the next one in 100 rounds.
  void post(const control::RemoteObject& comm);
  void steps(int rounds) {
    for (int i = 0; i < rounds; ++i) step();
  }
  /// Steps until `ticket` is done, or all operations are done.
  void until_done(Ticket ticket);
  void finish();
  /// Excludes the queues of `comm` from all steps until `resume`.
  void pause(const control::RemoteObject& comm) { set_paused(comm, true); }
  void resume(const control::RemoteObject& comm) { set_paused(comm, false); }
  /// Forgets the operations of `comm`, which is about to be closed.
  void abandon(const control::RemoteObject& comm);

  /// Number of operations of `comm` that are posted and not done.
  std::size_t in_flight(const control::RemoteObject& comm) const;
  bool posted(Ticket ticket) const { return operations_.at(ticket).state != State::kWaiting; }
  const control::Request& request(Ticket ticket) const { return operations_.at(ticket).request; }
  bool done(Ticket ticket) const { return operations_.at(ticket).state == State::kDone; }
  const control::TestOutcome& outcome(Ticket ticket) const { return operations_.at(ticket).outcome; }
  /// Bytes that test reported for buffer `part` of a completed operation.
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
  /// Operations that are posted and tested in order. `lane`: the tag of sends, or `kReceives`.
  struct Queue {
    std::string rank;
    std::uint64_t comm = 0;
    std::int64_t lane = 0;
    bool paused = false;
    std::deque<Ticket> waiting = {};
    std::deque<Ticket> posted = {};

    bool of(const control::RemoteObject& object) const { return comm == object.value() && rank == object.rank_name(); }
  };
  static constexpr std::int64_t kReceives = INT64_MIN;

  Queue& queue(const control::RemoteObject& comm, std::int64_t lane);
  Ticket add(Operation operation);
  void set_paused(const control::RemoteObject& comm, bool paused);
  bool step(Queue& queue);
  /// Steps until no queue for which `selected` is true has an operation waiting, or 100 rounds have posted none.
  template <typename Selected>
  void post_selected(Selected selected);
  template <typename Condition>
  void step_until(Condition reached);
  [[noreturn]] void report_stall() const;

  control::StallLimit limit_;
  std::size_t max_in_flight_;
  control::TestOptions test_;
  std::vector<Operation> operations_;
  std::deque<Queue> queues_;
};

}  // namespace plugfest::conformance
