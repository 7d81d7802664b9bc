// Remote procedure calls to one rank process: its channels, the calls in progress, their deadlines.
//
// Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/system/load_clock.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::control {

class RankProcess;

/// A request that was sent to a thread of a rank.
class PendingCall {
 public:
  std::shared_ptr<RankProcess> rank;
  std::string thread;
  std::uint32_t id = 0;
  /// "isend(1000 bytes, tag 7)"; "" for requests that are not plugin calls, which are not recorded.
  std::string text;
  std::int64_t sent_ns = 0;
  /// Time of the rank's last message for this call, in the time of the rank's LoadClock. Start of the deadline.
  std::int64_t progress_ns = 0;
  bool answered = false;
  wire::Answer kind = wire::Answer::kDone;
  std::vector<std::byte> body;
  /// True once the caller has waited for the answer; the ledger then contains the objects that the call opened.
  bool taken = false;
};

struct CrashReceived {
  wire::Crash crash;
};

/// The rank closed a channel: its process has ended or will end soon.
struct ChannelClosed {};

/// `call` is at the front of its thread and made no progress until its deadline, or until set_hang_check()'s function
/// returned true.
struct DeadlineExpired {
  std::shared_ptr<PendingCall> call;
};

/// Thread safety: one thread. Errors of every function: CrashReceived, ChannelClosed, wire::WireError for bytes that
/// are not a valid message. The object must not be used after an error.
class RpcChannels {
 public:
  /// `main`: the channel of thread wire::kMainThread. `timeout_ns`: the time limit of a call that makes no progress.
  /// `stop_fd`: see Limits.
  RpcChannels(wire::Channel control, wire::Channel main, std::int64_t timeout_ns, int stop_fd);

  std::int64_t timeout_ns() const { return timeout_ns_; }
  /// Deadlines of later calls count in the time of `clock`. Call it before the first call.
  void set_clock(std::shared_ptr<LoadClock> clock) { clock_ = std::move(clock); }
  const std::shared_ptr<LoadClock>& clock() const { return clock_; }
  /// `hangs`: whether a call that makes no progress hangs, before its deadline. It is called often.
  void set_hang_check(std::function<bool(const PendingCall&)> hangs) { hangs_ = std::move(hangs); }

  /// Sends `body` to thread `call.thread`, which is started if necessary. Sets the id and the times of `call`.
  /// `body`: at most wire::kMaxBody bytes. Errors: also as `wait`, while the thread does not read.
  void send(const std::shared_ptr<PendingCall>& call, wire::Operation operation, std::span<const std::byte> body);
  /// Waits until `call` is answered. Errors: also DeadlineExpired, Interrupted (stop_fd), HarnessError.
  void wait(PendingCall& call);
  /// Processes data that has arrived for the thread of `call`. Never waits.
  void receive(const PendingCall& call);
  /// Whether the thread of `call` has made no progress for the time limit.
  bool is_overdue(const PendingCall& call);
  /// Processes data that has arrived on the control channel. Never waits.
  void check_control();
  /// Whether the user has interrupted the run, or does so within a second.
  bool is_stopped() const;
  void restart_deadlines();
  /// Forgets calls without an answer, which hold their rank. The object must not be used afterwards, except to destroy
  /// it.
  void drop_calls();
  /// Why the rank could not start a thread; "" if it could.
  const std::string& failed_start() const { return failed_start_; }

  /// The call that a thread is executing; null for none.
  const PendingCall* running(std::string_view thread) const;
  /// A plugin call that some thread is executing; null for none.
  const PendingCall* any_plugin_call() const;
  /// Queries which plugin function a thread of the rank executes. "" when it executes none or the rank does not answer
  /// within 1 s. Never throws.
  std::string function_on(const std::string& thread);
  /// Calls whose answer no caller has waited for.
  std::size_t untaken() const { return untaken_; }

 private:
  struct Thread {
    explicit Thread(wire::Channel c) : channel(std::move(c)) {}
    wire::Channel channel;
    /// The front is the running call.
    std::deque<std::shared_ptr<PendingCall>> calls;
  };

  Thread& thread(const std::string& name);
  void receive(Thread& thread);
  void process_frame(Thread& thread, wire::Frame frame);
  /// Waits until one of `events`, as in poll(), occurs on the thread's channel. Errors: as `wait`.
  void wait_for(Thread& thread, short events);
  /// Throws CrashReceived if a crash report has arrived, else ChannelClosed.
  [[noreturn]] void fail_closed();

  wire::Channel control_;
  std::map<std::string, Thread, std::less<>> threads_;
  const std::int64_t timeout_ns_;
  std::shared_ptr<LoadClock> clock_;
  std::function<bool(const PendingCall&)> hangs_;
  const int stop_fd_;
  std::uint32_t next_id_ = 1;
  std::string failed_start_;
  std::size_t untaken_ = 0;
};

}  // namespace plugfest::control
