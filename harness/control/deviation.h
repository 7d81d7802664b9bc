// How a call in a rank can end a rule: by its code, by what it overwrote, by hanging, by crashing.
//
// A rule need not catch any of these; who runs the rule turns them into verdicts.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace plugfest::control {

/// The plugin did what it must not. `what()` is a whole line: "rank b.eth0: test(request 0x2) returned SystemError".
class Deviation : public std::runtime_error {
 public:
  Deviation(std::string rank, const std::string& what) : std::runtime_error(what), rank_(std::move(rank)) {}
  /// The rank's name.
  const std::string& rank() const { return rank_; }

 private:
  std::string rank_;
};

/// A call returned another code than Success.
class CallFailed : public Deviation {
 public:
  CallFailed(std::string rank, const std::string& what, int code) : Deviation(std::move(rank), what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// A call wrote where it must not: past an output, into an argument array.
class Damage : public Deviation {
 public:
  using Deviation::Deviation;
};

/// Operations that were started did not complete in time although every call returned: "… never completed".
class Stalled : public Deviation {
 public:
  using Deviation::Deviation;
};

/// A call did not return within its deadline. The rank is killed.
class Hung : public Deviation {
 public:
  Hung(std::string rank, const std::string& what, std::string call, std::vector<std::string> stack)
      : Deviation(std::move(rank), what), call_(std::move(call)), stack_(std::move(stack)) {}
  /// The call that hung: "connect(device 0)".
  const std::string& call() const { return call_; }
  /// Where its thread stands: system call, then native frames, innermost first. Empty when that could not be read.
  const std::vector<std::string>& stack() const { return stack_; }

 private:
  std::string call_;
  std::vector<std::string> stack_;
};

/// The process of a rank ended: by a signal, or because the plugin called exit.
class Crashed : public Deviation {
 public:
  Crashed(std::string rank, const std::string& what, std::string call, int signal, std::uint64_t address,
          std::vector<std::string> stack)
      : Deviation(std::move(rank), what),
        call_(std::move(call)),
        signal_(signal),
        address_(address),
        stack_(std::move(stack)) {}
  /// The call during which it happened; "" when no call was under way.
  const std::string& call() const { return call_; }
  /// Signal number; 0: exit was called.
  int signal() const { return signal_; }
  /// The address that was touched, for SIGSEGV and SIGBUS; else 0.
  std::uint64_t address() const { return address_; }
  /// Native frames of the thread, innermost first. Empty when they could not be read.
  const std::vector<std::string>& stack() const { return stack_; }

 private:
  std::string call_;
  int signal_;
  std::uint64_t address_;
  std::vector<std::string> stack_;
};

/// The harness itself failed: a rank could not be started, an answer made no sense. Never the plugin's fault.
class HarnessError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user wants an end, and nobody waits for the answer any more (Limits::stop_fd).
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace plugfest::control
