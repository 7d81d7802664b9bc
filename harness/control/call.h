// Plugin calls in a rank: calls in progress, outcomes, records, and the time limit of loops of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/load_clock.h"
#include "harness/control/process/errors.h"

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
///  kNull: NULL. kPoison: a pattern that no plugin returns. kMarker: 0x1, as NCCL presets receives of the LL protocol.
///  kStale: the value that the previous call of this kind on this comm stored, as in NCCL; poison for the first call.
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
  /// Describes writes outside outputs and argument arrays, detected by canaries; "" if there were none.
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

/// Throws `CallFailed` when the code is not Success, and `Damage` when memory outside outputs was overwritten.
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

/// Makes a call for each element of `range` on one thread of a rank. Keeps up to 64 calls started, because waiting for
/// each answer takes longer than most calls. `start(element)` returns the Started of a call. `take(element, outcome)`
/// returns whether to start further calls; it also gets the outcomes of those that were started before. Errors: as
/// Started::get(), and those of `take`.
template <typename Range, typename Start, typename Take>
void make_calls(const Range& range, Start start, Take take) {
  constexpr std::size_t kMaxStarted = 64;
  std::deque<decltype(start(*range.begin()))> started;
  auto next = range.begin();
  bool continues = true;
  for (auto taken = range.begin();; ++taken) {
    for (; continues && next != range.end() && started.size() < kMaxStarted; ++next) started.push_back(start(*next));
    if (started.empty()) return;
    auto outcome = started.front().get();
    started.pop_front();
    continues &= take(*taken, outcome);
  }
}

/// The numbers from 0 to `count` - 1, as the range of make_calls().
std::vector<std::size_t> numbers_below(std::size_t count);

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

/// The last 256 records of one rank. Equal calls in sequence are one record. Passes each call to the observer, if any.
class RecordRing {
 public:
  RecordRing(std::string rank, CallObserver* observer) : rank_(std::move(rank)), observer_(observer) {}
  void before_call(const std::string& call) const {
    if (observer_ != nullptr) observer_->before_call(rank_, call);
  }
  void add(CallRecord record);
  void clear() { records_.clear(); }
  const std::deque<CallRecord>& all() const { return records_; }

  /// The last `count` records, oldest first, one line each, with times relative to `origin_ns`:
  /// "  12.345 ms  prog  isend(1000 bytes, tag 7) → request 0x2  (4 µs)".
  std::vector<std::string> last_lines(std::size_t count, std::int64_t origin_ns) const;

 private:
  const std::string rank_;
  CallObserver* const observer_;
  std::deque<CallRecord> records_;
};

/// The time limit of loops of plugin calls that make no progress. Call `expired()` in each turn without progress, and
/// `restart()` after each other turn. Measures the time of a LoadClock, and requires a minimum number of turns: on a
/// busy machine few of them fit into the limit. Copies count independently.
/// Thread safety: the same as the clock's.
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
