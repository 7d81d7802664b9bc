// Functions for rules: several operations in turn, connections in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::control {

/// An operation that takes several plugin calls.
class Step {
 public:
  virtual ~Step() = default;
  /// Advances the operation by one plugin call. Returns true when the operation is done. Do not call it again after
  /// that.
  virtual bool turn() = 0;
  virtual bool done() const = 0;
  /// The text of the operation in the message of `Stalled`: "rank b.eth0: irecv of 1000 bytes, tag 7 (request 0x2)".
  virtual std::string describe() const = 0;
  /// Limit for turns without progress. Each call returns a new limit.
  virtual StallLimit stall_limit() const = 0;
};

/// Calls `turn` of each step that is not done, in order, until all are done. Steps may have begun or be done before.
/// `before_round`: called before each round of turns. Errors: `Stalled` when no step completed within the stall_limit
/// of the first step; errors of `turn` and `before_round`.
void finish(const std::vector<Step*>& steps, const std::function<void()>& before_round = {});

/// Polls both in turn until both are done.
std::pair<SendComm, RecvComm> finish(Connect& connect, Accept& accept);
std::pair<SendComm, RecvComm> finish(Connect&& connect, Accept&& accept);

struct Endpoint {
  Rank rank;
  Device device;
};

/// Connects `from` to `to` and closes the listener, as NCCL does.
struct Connection {
  SendComm send;
  RecvComm receive;
};
Connection connect(const Endpoint& from, const Endpoint& to);

/// The facts about the process of `rank` once `holds(facts)` is true, or after a tenth of `limit` in which it was not:
/// threads may end and descriptors may close some time after the call.
ProcessFacts settled(Rank rank, const StallLimit& limit, const std::function<bool(const ProcessFacts&)>& holds);

/// A send as a step: isend until the plugin accepts it, then test until done.
class Send : public Step {
 public:
  Send(SendComm comm, Buffer buffer, int tag = 0, PostOptions post = {}, TestOptions test = {});
  bool turn() override;
  std::string describe() const override;
  StallLimit stall_limit() const override;
  /// Calls isend unless the plugin has accepted the send; returns whether it has.
  bool post();
  const Request& request() const { return request_; }
  bool done() const override { return done_; }
  int size() const { return request_.size(); }

 private:
  SendComm comm_;
  Buffer buffer_;
  int tag_;
  PostOptions post_;
  TestOptions test_;
  Request request_;
  bool done_ = false;
};

/// A receive of one buffer or of a group as a step.
class Receive : public Step {
 public:
  Receive(RecvComm comm, Buffer buffer, int tag = 0, PostOptions post = {}, TestOptions test = {});
  Receive(RecvComm comm, std::vector<Part> parts, PostOptions post = {}, TestOptions test = {});
  bool turn() override;
  std::string describe() const override;
  StallLimit stall_limit() const override;
  bool post();
  const Request& request() const { return request_; }
  bool done() const override { return done_; }
  int size(std::size_t index = 0) const { return request_.size(index); }

 private:
  RecvComm comm_;
  std::vector<Part> parts_;
  PostOptions post_;
  TestOptions test_;
  Request request_;
  bool done_ = false;
};

/// Connect or accept as a step, for many connections in one `finish`. `Attempt`: Connect, Accept, or a reference to
/// one.
template <typename Attempt>
class AttemptStep : public Step {
 public:
  explicit AttemptStep(Attempt attempt) : attempt_(static_cast<Attempt&&>(attempt)) {}
  bool turn() override { return attempt_.done() || attempt_.poll(); }
  bool done() const override { return attempt_.done(); }
  std::string describe() const override;
  StallLimit stall_limit() const override { return attempt_.stall_limit(); }
  auto comm() const { return attempt_.comm(); }

 private:
  Attempt attempt_;
};
using Connecting = AttemptStep<Connect>;
using Accepting = AttemptStep<Accept>;

}  // namespace plugfest::control
