// Operations that may fail.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "harness/control/connection.h"

namespace plugfest::conformance {

/// An isend or irecv that may end in any result code: for rules about errors. Not thread-safe.
class Trial {
 public:
  static Trial send(const control::SendComm& comm, const control::Buffer& buffer, int tag = 0);
  static Trial receive(const control::RecvComm& comm, const std::vector<control::Part>& parts);

  /// Posts the operation, or tests it when the plugin has accepted it. Returns whether it is over.
  bool turn();
  /// Whether the operation is done or has failed.
  bool over() const { return over_; }
  bool done() const { return over_ && code_ == control::kSuccess; }
  bool failed() const { return over_ && code_ != control::kSuccess; }
  bool accepted() const { return static_cast<bool>(request_); }
  const control::Request& request() const { return request_; }
  /// The last call.
  const control::Outcome& last() const { return last_; }
  /// sizes[0] of a receive or send that is done.
  int size() const { return size_; }
  /// "reported 64 bytes", "was refused with ncclInternalError (3)", "failed with …", "did not complete".
  std::string describe() const;

 private:
  Trial(std::function<control::PointerOutcome()> post, std::function<control::Request(std::uint64_t)> request);

  std::function<control::PointerOutcome()> post_;
  std::function<control::Request(std::uint64_t)> to_request_;
  control::Request request_;
  control::Outcome last_;
  bool over_ = false;
  int code_ = control::kSuccess;
  int size_ = 0;
};

/// Gives each trial up to `turns` turns, in order, until all are over. Returns whether they are.
bool drive(std::initializer_list<Trial*> trials, int turns);

}  // namespace plugfest::conformance
