// The process behind a `Rank`: its channels, the calls under way in it, what it has open, how it ended.
//
// Internal to this folder; rules use rank.h. One thread at a time, except `capture`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/process/capture.h"
#include "harness/control/process/launcher.h"
#include "harness/control/process/ledger.h"
#include "harness/control/rank.h"
#include "harness/control/record.h"
#include "harness/control/session.h"
#include "harness/rank/protocol/channel.h"
#include "harness/rank/protocol/protocol.h"

namespace plugfest::control {

/// A request that was sent to a thread of a rank.
class PendingCall {
 public:
  std::shared_ptr<RankProcess> rank;
  std::string thread;
  std::uint32_t id = 0;
  /// "isend(1000 bytes, tag 7)"; "" for what is no plugin call and is not recorded.
  std::string text;
  std::int64_t sent_ns = 0;
  /// What came back.
  bool answered = false;
  rank::Answer kind = rank::Answer::kDone;
  /// Somebody has waited for it; what it opened is in the ledger.
  bool taken = false;
  std::vector<std::byte> body;
  /// When it last gave a sign of life.
  std::int64_t moved_ns = 0;
};

class RankProcess : public std::enable_shared_from_this<RankProcess> {
 public:
  /// Starts the program; it has loaded nothing yet. Errors: HarnessError.
  static std::shared_ptr<RankProcess> start(Launcher& launcher, Collector& collector, const std::string& name,
                                            const Subject& subject, const Environment& environment,
                                            const Limits& limits);
  ~RankProcess();  ///< kills it
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  const std::string& name() const { return name_; }
  const Subject& subject() const { return subject_; }
  const Limits& limits() const { return limits_; }
  std::int64_t patience_ns() const { return static_cast<std::int64_t>(limits_.call_seconds * 1e9); }
  pid_t pid() const { return pid_; }

  // -- Calls. `thread` "": `usual`.

  /// Errors: Crashed when the rank is dead, HarnessError.
  std::shared_ptr<PendingCall> send(const std::string& thread, std::string_view usual, rank::Operation operation,
                                    std::span<const std::byte> body, std::string text = {});
  /// Waits for the answer; its body. Errors: Hung, Crashed, Deviation (the loader's words), HarnessError, Interrupted.
  const std::vector<std::byte>& wait(PendingCall& call);
  /// Takes in what has arrived for the thread of this call, without waiting.
  void look(PendingCall& call);
  /// Closes the call's record with its result, in words.
  void record(const PendingCall& call, const rank::CallAnswer& answer, std::string result);

  /// A request that is no plugin call, sent and waited for.
  template <class Answer, class Request>
  Answer ask(rank::Operation operation, const Request& request, std::string_view usual) {
    return read<Answer>(*send("", usual, operation, rank::encode(request)));
  }
  template <class Request>
  void tell(rank::Operation operation, const Request& request, std::string_view usual) {
    wait(*send("", usual, operation, rank::encode(request)));
  }
  /// The answer to a call as what it should be. Errors: as `wait`; HarnessError when its bytes make no sense.
  template <class Answer>
  Answer read(PendingCall& call) {
    const std::vector<std::byte>& body = wait(call);
    try {
      return rank::decode<Answer>(body);
    } catch (const rank::WireError& error) {
      bad_bytes(error.what());
    }
  }

  // -- The process.

  void freeze();
  void thaw();
  void kill();
  bool alive() const { return pid_ > 0 && !dead_; }
  bool frozen() const { return frozen_; }
  /// True when it can serve another rule: alive, running, nothing under way, nothing unusual happened.
  bool whole() const;
  /// Something happened after which no other rule should get this process.
  void spoil() { spoiled_ = true; }
  /// Throws `Crashed` if the process has crashed or ended on its own; for crashes outside of any call.
  void check_alive();

  /// True once `kill` has ended it, rather than the plugin.
  bool killed() const { return killed_; }
  /// `observer`: null for none.
  void observe(CallObserver* observer) { observer_ = observer; }

  Ledger ledger;
  RecordRing records;
  const std::shared_ptr<Capture>& capture() const { return capture_; }
  LibraryFacts library;
  std::uint64_t next_attempt = 1;

 private:
  struct Thread {
    explicit Thread(rank::Channel c) : channel(std::move(c)) {}
    rank::Channel channel;
    std::deque<std::shared_ptr<PendingCall>> under_way;
  };

  RankProcess(std::string name, const Subject& subject, const Limits& limits, rank::Channel control);

  Thread& thread(const std::string& name);
  /// Takes in what has arrived on a thread's channel.
  void take_in(Thread& thread);
  void take_frame(Thread& thread, rank::Frame frame);
  /// Waits until something arrives for the thread or the process ends; false at the deadline.
  bool wait_for_input(Thread& thread, std::int64_t deadline_ns);
  /// Reads a crash report or the end of the process, if either has come. Throws `Crashed` then.
  void look_at_control();
  [[noreturn]] void report_crash(const rank::Crash& crash);
  [[noreturn]] void report_end();
  [[noreturn]] void report_hang(const PendingCall& call);
  [[noreturn]] void bad_bytes(const std::string& what);
  void add_record(CallRecord record);
  /// Ends the process without a word about who did it.
  void end();
  /// The plugin call that a crash or hang on `thread` belongs to.
  std::string call_on(std::string_view thread, const std::string& function) const;
  /// Asks the control thread which plugin function runs on a thread; "" when it does not say in time.
  std::string function_on(const std::string& thread);
  int reap();

  const std::string name_;
  const Subject subject_;
  const Limits limits_;
  pid_t pid_ = -1;
  rank::Channel control_;
  std::map<std::string, Thread> threads_;
  std::shared_ptr<Capture> capture_;
  std::uint32_t next_id_ = 1;
  std::size_t not_taken_ = 0;
  bool dead_ = false;
  bool frozen_ = false;
  bool spoiled_ = false;
  bool killed_ = false;
  CallObserver* observer_ = nullptr;
  /// Why it is dead, for calls that come after.
  std::string end_;
};

}  // namespace plugfest::control
