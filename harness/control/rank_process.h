// The process behind a `Rank`: its calls, its open objects, its end.
//
// Rules use rank.h, and start() for calls for which Rank, SendComm and RecvComm have no function.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/launcher.h"
#include "harness/control/process/blocked_call.h"
#include "harness/control/process/capture.h"
#include "harness/control/process/failure_report.h"
#include "harness/control/process/ledger.h"
#include "harness/control/process/process_facts.h"
#include "harness/control/process/rpc.h"
#include "harness/control/subject.h"
#include "harness/wire/protocol.h"

namespace plugfest::control {

/// Thread safety: one thread at a time, except `capture`.
class RankProcess : public std::enable_shared_from_this<RankProcess> {
 public:
  /// Starts the program, which loads no plugin yet. `observer`: null for none. `places` must live as long as the
  /// result. Errors: std::runtime_error.
  static std::shared_ptr<RankProcess> start(Launcher& launcher, Collector& collector, const std::string& name,
                                            const Subject& subject, const Environment& environment,
                                            const Limits& limits, CallObserver* observer, HangPlaces& places);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  const std::string& name() const { return name_; }
  const Subject& subject() const { return subject_; }
  /// Time limit of one call, or of operations that make no progress.
  std::int64_t timeout_ns() const { return rpc_.timeout_ns(); }
  /// Makes deadlines of later calls use the time of `clock`, which watches this process from then on. Call it before
  /// the first call, and while no call is in progress.
  void use_clock(const std::shared_ptr<LoadClock>& clock);
  /// A limit for operations without progress.
  StallLimit stall_limit() const { return {rpc_.clock(), timeout_ns()}; }
  pid_t pid() const { return child_->pid(); }

  /// Sends a request. `thread` "": the request's usual thread. `text`: see PendingCall.
  /// Errors: Crashed when the rank is dead; while it does not read the request, as `wait`; WireError for a request over
  /// wire::kMaxBody.
  template <typename Request>
  std::shared_ptr<PendingCall> send(const std::string& thread, const Request& request, std::string text = {}) {
    using Traits = wire::RequestTraits<Request>;
    return send_encoded(thread.empty() ? Traits::kThread : thread, Traits::kOperation, wire::encode(request),
                        std::move(text));
  }
  /// Waits for the answer and returns its body. Errors: Hung, Crashed, Refused, HarnessError, Interrupted.
  const std::vector<std::byte>& wait(PendingCall& call);
  /// Processes data that has arrived for the thread of this call, without waiting.
  void poll(PendingCall& call);
  /// True when `wait` would throw: the deadline of the call has passed, or the process has ended.
  bool is_overdue(const PendingCall& call) { return reaped() || rpc_.is_overdue(call); }
  /// See Lease::wait_for_retransmissions.
  void wait_for_retransmissions(bool wait) { blocked_.wait_for_retransmissions(wait); }
  /// Adds the call and its result to the records.
  void record(const PendingCall& call, const wire::CallAnswer& answer, std::string result);

  /// Sends a request that is not a plugin call and waits for the answer. Errors: as `send` and `read`.
  template <typename Request>
  wire::AnswerTo<Request> ask(const Request& request, const std::string& thread = {}) {
    return read<wire::AnswerTo<Request>>(*send(thread, request));
  }
  /// Waits for the answer and decodes it. Errors: as `wait`; HarnessError when its bytes are not an `Answer`.
  template <typename Answer>
  Answer read(PendingCall& call) {
    const std::vector<std::byte>& body = wait(call);
    return reporting([&] { return wire::decode<Answer>(body); });
  }

  /// Sets a function that `freeze` calls first; may be null.
  void before_freeze(std::function<void()> action) { before_freeze_ = std::move(action); }
  void freeze();
  void thaw();
  void kill();
  /// Sends a request that ends the process by exit(0). Errors: Hung, Crashed.
  void exit(const wire::Exit& request);
  bool reaped() const { return child_->reaped(); }
  /// True when the process can serve another rule: not reaped, not frozen, no call in progress, no failure so far.
  bool reusable() const;
  /// Makes `reusable` false.
  void mark_unfit() { unfit_ = true; }
  /// Errors: `Crashed` if the process has crashed or ended on its own, even outside calls.
  void check_alive();
  bool killed() const { return killed_; }

  Ledger ledger;
  const RecordRing& records() const { return records_; }
  void clear_records() { records_.clear(); }
  const std::shared_ptr<Capture>& capture() const { return capture_; }
  /// The loaded library; its version is 0 before `set_library`.
  const LibraryFacts& library() const { return library_; }
  void set_library(LibraryFacts library) { library_ = std::move(library); }

 private:
  RankProcess(std::string name, const Subject& subject, RpcChannels rpc, std::shared_ptr<Capture> capture,
              CallObserver* observer, const Limits& limits, HangPlaces& places);

  /// Runs `action`, which uses `rpc_`, and converts its errors to classes of errors.h.
  template <typename Action>
  auto reporting(Action action) {
    try {
      return action();
    } catch (const CrashReceived& report) {
      report_crash(report.crash);
    } catch (const ChannelClosed&) {
      report_exit();
    } catch (const DeadlineExpired& expired) {
      report_hang(*expired.call);
    } catch (const wire::WireError& error) {
      report_invalid_bytes(error.what());
    }
  }
  std::shared_ptr<PendingCall> send_encoded(std::string thread, wire::Operation operation,
                                            std::span<const std::byte> body, std::string text);
  [[noreturn]] void report_crash(const wire::Crash& crash);
  [[noreturn]] void report_exit();
  /// Ends the process for `reason`; "": it has ended or will end soon.
  [[noreturn]] void report_end(const std::string& reason);
  void require_few_processes();
  [[noreturn]] void report_hang(const PendingCall& call);
  bool hangs_at_known_place(const PendingCall& call);
  [[noreturn]] void report_invalid_bytes(const std::string& what);
  /// Call it once the process has been ended and `why` is known. Calls without an answer hold this object no longer.
  void note_end(std::string why);
  /// Errors: `Crashed` with the reason if the process has been ended.
  void throw_if_reaped() const;

  const std::string name_;
  const Subject subject_;
  /// Not null once `start` has returned.
  std::unique_ptr<ChildProcess> child_;
  /// The value of kRankVariable in the process.
  std::string mark_;
  RpcChannels rpc_;
  const std::shared_ptr<Capture> capture_;
  RecordRing records_;
  LibraryFacts library_;
  std::function<void()> before_freeze_;
  BlockedCall blocked_;
  std::int64_t counted_ns_ = 0;  ///< time of the last require_few_processes() of a call
  bool unfit_ = false;
  bool killed_ = false;
  /// Why the process was ended, for later calls.
  std::string end_;
};

void fill_in(Outcome& outcome, const wire::CallAnswer& answer, const PendingCall& call);

/// The result for the call record: `if_ok` for Success, else the name of the code.
std::string result_text(const wire::CallAnswer& answer, std::string if_ok);

/// Errors: `UndefinedCode` unless the code is one of kSuccess to kRemoteError. `broken`: the call that failed, if the
/// request makes many calls; otherwise empty.
void require_defined_code(const Outcome& outcome, const std::string& broken);

/// "0x2", "NULL".
std::string pointer_text(std::uint64_t value);

/// The value of an output before the call. `stale`: the value for kStale.
std::uint64_t slot_value(Preset preset, std::uint64_t stale);

/// Sends a request of PLUGFEST_REQUESTS. `text`: see PendingCall. When the answer has arrived, `finish(outcome, answer,
/// process)` sets the members of `T`, updates the ledger and returns the result for the call record.
template <typename T, typename Request, typename Finish>
Started<T> start(const std::shared_ptr<RankProcess>& process, const std::string& thread, const Request& request,
                 std::string text, Finish finish) {
  auto call = process->send(thread, request, std::move(text));
  return Started<T>(std::move(call), [finish](PendingCall& pending) {
    const auto answer = pending.rank->read<wire::AnswerTo<Request>>(pending);
    T outcome;
    fill_in(outcome, answer, pending);
    std::string result = finish(outcome, answer, *pending.rank);
    pending.rank->record(pending, answer, result_text(answer, std::move(result)));
    if constexpr (requires { outcome.broken; })
      require_defined_code(outcome, outcome.broken);
    else
      require_defined_code(outcome, "");
    return outcome;
  });
}

/// The thread of a call of the net: `thread`, or, if that is empty, NCCL's usual one for this function.
std::string thread_of(const std::string& thread, const wire::Call& call);

/// Starts a call of the net, as `start`. Its arguments are for the newest version.
template <typename T, typename Finish>
Started<T> start_net(const std::shared_ptr<RankProcess>& process, const std::string& thread, const wire::Call& call,
                     std::string text, Finish finish) {
  return start<T>(process, thread_of(thread, call), call, std::move(text), std::move(finish));
}

/// Starts a call of the net that only returns a code. `closed`: updates the ledger when the call has returned.
template <typename Closed>
Started<Outcome> start_plain(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                             const wire::Call& call, std::string text, Closed closed) {
  return start_net<Outcome>(process, thread, call, std::move(text),
                            [closed](Outcome&, const wire::CalledAnswer&, RankProcess& rank) {
                              closed(rank);
                              return "Success";
                            });
}

/// The value that the call has stored in its output number `index`; zero and no bytes if it stored none.
const wire::Argument& output_of(const wire::CalledAnswer& answer, std::size_t index);

/// Sets value and untouched. `preset`: the value of the output before the call.
void take_pointer(PointerOutcome& outcome, const wire::CalledAnswer& answer, std::size_t index, std::uint64_t preset);

}  // namespace plugfest::control
