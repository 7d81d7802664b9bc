// Plugin calls in a rank: calls in progress, outcomes, exceptions, records, and the time limit of loops of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/system/load_clock.h"

namespace plugfest::control {

class PendingCall;

/// ncclResult_t as plugins return it. Outcomes keep the raw int, since a plugin may return anything.
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;

/// "ncclSuccess", "ncclSystemError (2)", …; "result 9" for a value that NCCL does not know.
std::string result_name(int code);

/// The value of an output pointer (*sendComm, *request, *mhandle, …) before the call.
///  kNull: NULL. kPoison: a pattern that no plugin returns. kMarker: 0x1, as core presets receives of the LL protocol.
///  kStale: the value that the previous call of this kind on this comm stored, as in core; poison for the first call.
enum class Preset : std::uint8_t { kNull, kPoison, kMarker, kStale };

/// The value for Preset::kPoison. Its low bits preset int outputs.
inline constexpr std::uint64_t kPoison = 0x5aa55aa5'5aa55aa5ull;

/// Members of every call's outcome.
struct Outcome {
  /// ncclResult_t, raw.
  int code = kSuccess;
  /// Start and end of the plugin call, CLOCK_MONOTONIC of the rank's machine.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Describes writes outside of outputs and argument arrays, detected by canaries; "" if there were none.
  std::string damage;
  /// Describes changes of argument arrays that are only inputs (XF-15); "" if there were none.
  std::string changes;
  std::string rank;
  /// The call in the form of messages: "rank a.eth0: isend(comm 0x1, 1000 bytes, tag 7)".
  std::string call;

  bool ok() const { return code == kSuccess; }
};

/// Outcome of a call that stores one pointer: listen, connect, accept, regMr, isend, irecv, iflush, init.
struct PointerOutcome : Outcome {
  std::uint64_t value = 0;
  /// The output still holds its preset. With Preset::kNull this is also true when the plugin stored NULL.
  bool untouched = false;
};

/// Outcome of a call that stores one int: devices, makeVDevice.
struct IntOutcome : Outcome {
  int value = 0;
  bool untouched = false;
};

struct TestOutcome : Outcome {
  /// The stored value. Only 0 and 1 are correct.
  int done = 0;
  bool done_untouched = false;
  /// All 64 entries of the array; empty when sizes was NULL. Before the call each entry is TestOptions::size_fill.
  std::vector<int> sizes;
};

/// Throws `CallFailed` when the code is not Success, and `Damage` when memory outside of outputs was overwritten.
void require_success(const Outcome& outcome);

/// A call in progress in a rank. Calls on different threads and ranks run at the same time. The call continues when the
/// object is destroyed; its outcome is then lost, and the rank is not used for other rules.
template <typename T>
class Started {
 public:
  Started(std::shared_ptr<PendingCall> call, std::function<T(PendingCall&)> finish)
      : call_(std::move(call)), finish_(std::move(finish)) {}

  /// True when the call has returned. Never waits.
  bool ready() const;
  /// True when the rank has not reported progress of this call for the time limit of a call; `get` then throws `Hung`.
  /// Never waits.
  bool overdue() const;
  /// Waits for the outcome. Call it once. Errors: `Hung` after the deadline, `Crashed` when the rank has ended.
  T get() { return finish_(*call_); }

 private:
  std::shared_ptr<PendingCall> call_;
  std::function<T(PendingCall&)> finish_;
};

/// True when the answer has arrived. Never waits.
bool answer_arrived(PendingCall& call);
/// See Started::overdue().
bool is_overdue(PendingCall& call);

template <typename T>
bool Started<T>::ready() const {
  return answer_arrived(*call_);
}

template <typename T>
bool Started<T>::overdue() const {
  return is_overdue(*call_);
}

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

/// A call wrote outside of its outputs.
class Damage : public Deviation {
 public:
  using Deviation::Deviation;
};

/// Operations did not complete in time although every call returned: "… never completed".
class Stalled : public Deviation {
 public:
  using Deviation::Deviation;
};

/// The start of the first line of a stack whose thread waits in the kernel: "in system call futex".
inline constexpr std::string_view kInSystemCall = "in system call ";

/// The innermost location in the plugin of a stack (Hung::stack, Crashed::stack): "p.c:56". "" if no frame is in
/// `library`, the plugin's file.
std::string place_in_plugin(const std::vector<std::string>& stack, const std::string& library);

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

/// The plugin could not be loaded or initialised for any rule so far; or the rule needs something that is impossible
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

/// One plugin call, or several equal ones in sequence.
struct CallRecord {
  std::string thread;
  /// "isend(1000 bytes, tag 7)".
  std::string call;
  /// "request 0x2"; "ncclSystemError (2)"; "not done".
  std::string result;
  /// Start of the first call and end of the last one, CLOCK_MONOTONIC.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t count = 1;
};

/// Observes every call. Thread safety: its functions may be called from several threads at once.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Rank "a.eth0" receives the request for "isend(1000 bytes, tag 7)" after this function has returned.
  virtual void before_call(const std::string& rank, const std::string& call) {
    (void)rank;
    (void)call;
  }
  /// A call of rank "a.eth0" has returned, hung or crashed.
  virtual void on_call(const std::string& rank, const CallRecord& call) = 0;
};

/// The last 256 records of one rank. Equal calls in sequence are one record.
class RecordRing {
 public:
  void add(CallRecord record);
  void clear() { records_.clear(); }
  const std::deque<CallRecord>& all() const { return records_; }

  /// The last `count` records, oldest first, one line each, with times relative to `origin_ns`:
  /// "  12.345 ms  prog  isend(1000 bytes, tag 7) → request 0x2  (4 µs)".
  std::vector<std::string> last_lines(std::size_t count, std::int64_t origin_ns) const;

 private:
  std::deque<CallRecord> records_;
};

/// The time limit of loops of plugin calls that make no progress. Call `expired()` in each turn without progress, and
/// `restart()` after each other turn. Measures the time of a LoadClock, and requires a minimum number of turns: on a
/// busy machine few of them fit into the limit. Copies count independently.
/// Thread safety: that of the clock.
class StallLimit {
 public:
  StallLimit(std::shared_ptr<LoadClock> clock, Nanoseconds limit)
      : clock_(std::move(clock)), limit_(limit), start_(clock_->now()) {}

  /// Returns a multiple of the limit that starts now.
  StallLimit times(double factor) const {
    return {clock_, static_cast<Nanoseconds>(static_cast<double>(limit_) * factor)};
  }
  double seconds() const { return static_cast<double>(limit_) / 1e9; }

  void restart() {
    start_ = clock_->now();
    turns_ = 0;
  }
  bool expired() { return ++turns_ >= kMinTurns && clock_->now() - start_ > limit_; }

 private:
  static constexpr int kMinTurns = 32;

  std::shared_ptr<LoadClock> clock_;
  Nanoseconds limit_;
  Nanoseconds start_;
  int turns_ = 0;
};

}  // namespace plugfest::control
