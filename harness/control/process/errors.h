// Exceptions of calls in ranks.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace plugfest::control {

/// The plugin broke a rule. `what()` is one line: "rank b.eth0: test(request 0x2) returned ncclSystemError (2)".
class Deviation : public std::runtime_error {
 public:
  Deviation(std::string rank, const std::string& what) : std::runtime_error(what), rank_(std::move(rank)) {}
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

/// A call returned a code that no plugin may return: ncclInProgress, or a code that NCCL does not define.
class UndefinedCode : public Deviation {
 public:
  using Deviation::Deviation;
};

/// The loader refused the plugin.
class Refused : public Deviation {
 public:
  Refused(std::string rank, const std::string& what, std::string missing)
      : Deviation(std::move(rank), what), missing_(std::move(missing)) {}
  /// The library that the loader did not find; empty for other causes.
  const std::string& missing() const { return missing_; }

 private:
  std::string missing_;
};

/// A call wrote outside its outputs.
class Damage : public Deviation {
 public:
  using Deviation::Deviation;
};

/// A size that test reported is not the size that was sent.
class WrongSize : public Deviation {
 public:
  using Deviation::Deviation;
};

/// Operations did not complete in time although every call returned: "… never completed".
class Stalled : public Deviation {
 public:
  using Deviation::Deviation;
};

/// A call did not return within its deadline. The rank is killed.
class Hung : public Deviation {
 public:
  /// `cut_short`: see Limits::blocked_seconds.
  Hung(std::string rank, const std::string& what, std::string call, std::vector<std::string> stack,
       bool cut_short = false)
      : Deviation(std::move(rank), what), call_(std::move(call)), stack_(std::move(stack)), cut_short_(cut_short) {}
  /// The call that hung: "connect(device 0)".
  const std::string& call() const { return call_; }
  /// The system call of its thread, then native frames, innermost first. Empty when they could not be read.
  const std::vector<std::string>& stack() const { return stack_; }
  bool cut_short() const { return cut_short_; }

 private:
  std::string call_;
  std::vector<std::string> stack_;
  bool cut_short_;
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
  /// The call that was in progress; "" for none.
  const std::string& call() const { return call_; }
  /// Signal number; 0: exit was called.
  int signal() const { return signal_; }
  /// The accessed address, for SIGSEGV and SIGBUS; else 0.
  std::uint64_t address() const { return address_; }
  /// Native frames of the thread, innermost first. Empty when they could not be read.
  const std::vector<std::string>& stack() const { return stack_; }

 private:
  std::string call_;
  int signal_;
  std::uint64_t address_;
  std::vector<std::string> stack_;
};

/// The plugin could not be loaded or initialized for any rule so far; or the rule needs something that is impossible
/// for a rank on another machine. `what()` is the reason.
class Unusable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The harness failed: a rank could not be started, or an answer was invalid. The plugin did not cause this.
class HarnessError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user interrupted the run (Limits::stop_fd).
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace plugfest::control
