// Words for rules: several operations driven side by side, connections in one line, streams of messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::control {

/// Something that takes several plugin calls. `finish` gives each a turn until all are done.
class Step {
 public:
  virtual ~Step() = default;
  /// Makes at most one plugin call; true when done. Not called again after that.
  virtual bool turn() = 0;
  /// What it is, for `Stalled`: "rank b.eth0: irecv of 1000 bytes, tag 7 (request 0x2)".
  virtual std::string describe() const = 0;
  /// How long it may stand still.
  virtual std::int64_t timeout_ns() const = 0;
};

/// Gives each step that is not done a turn, in order, until all are done.
/// Errors: `Stalled` naming the steps that are not done when none got done for a call's deadline; whatever a turn
/// throws.
void finish(const std::vector<Step*>& steps);

/// Drives both ends of a connection until both are done, one call each in turn.
std::pair<SendComm, RecvComm> finish(Connect& connect, Accept& accept);
std::pair<SendComm, RecvComm> finish(Connect&& connect, Accept&& accept);

/// A device of a rank.
struct Endpoint {
  Rank rank;
  Device device;
};

/// One connected stream from `from` to `to`; the listener is closed as core does.
struct Connection {
  SendComm send;
  RecvComm receive;
};
Connection connect(const Endpoint& from, const Endpoint& to);

/// Send as a step: isend until the plugin takes it, then test until done.
class Send : public Step {
 public:
  Send(SendComm comm, Buffer buffer, int tag = 0, PostOptions post = {}, TestOptions test = {});
  bool turn() override;
  std::string describe() const override;
  std::int64_t timeout_ns() const override;
  /// Makes isend calls only: true once the plugin took it.
  bool post();
  const Request& request() const { return request_; }
  bool done() const { return done_; }
  /// sizes[0] of the test that said done.
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

/// Receive as a step, of one buffer or of a group.
class Receive : public Step {
 public:
  Receive(RecvComm comm, Buffer buffer, int tag = 0, PostOptions post = {}, TestOptions test = {});
  Receive(RecvComm comm, std::vector<Part> parts, PostOptions post = {}, TestOptions test = {});
  bool turn() override;
  std::string describe() const override;
  std::int64_t timeout_ns() const override;
  bool post();
  const Request& request() const { return request_; }
  bool done() const { return done_; }
  int size(std::size_t index = 0) const { return request_.size(index); }

 private:
  RecvComm comm_;
  std::vector<Part> parts_;
  PostOptions post_;
  TestOptions test_;
  Request request_;
  bool done_ = false;
};

/// Connect and accept as steps, for many connections in one `finish`.
class Connecting : public Step {
 public:
  explicit Connecting(Connect connect) : connect_(std::move(connect)) {}
  bool turn() override { return connect_.poll(); }
  std::string describe() const override;
  std::int64_t timeout_ns() const override;
  SendComm comm() const { return connect_.comm(); }

 private:
  Connect connect_;
};
class Accepting : public Step {
 public:
  explicit Accepting(Accept accept) : accept_(std::move(accept)) {}
  bool turn() override { return accept_.poll(); }
  std::string describe() const override;
  std::int64_t timeout_ns() const override;
  RecvComm comm() const { return accept_.comm(); }

 private:
  Accept accept_;
};

}  // namespace plugfest::control
