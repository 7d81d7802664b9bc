// Communicators of GIN and RMA: ranks that are connected to each other, symmetric memory, and one-sided operations as
// steps. Callers name parameters of any version; those that the version in use lacks are not passed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/one_sided.h"
#include "harness/control/rank.h"
#include "harness/control/script.h"
#include "harness/control/workload.h"

namespace plugfest::control {

/// The endpoint of a rank in a collComm, with one context.
class OneSidedRank {
 public:
  OneSidedRank(Rank rank, std::uint64_t comm);

  Rank& rank() { return rank_; }
  const std::string& name() const { return rank_.name(); }
  std::uint64_t comm() const { return comm_; }
  std::uint64_t context() const { return context_; }
  void use_context(std::uint64_t context) { context_ = context; }
  /// Makes all further calls on this thread of the rank, including start_loop().
  void use_thread(std::string_view thread) { rank_ = rank_.on(thread); }

  /// These functions call a plugin function with the rank's comm, its context and `arguments`.
  CallOutcome try_call(std::string_view function, CallArguments arguments = {}) {
    return start_call(function, std::move(arguments)).get();
  }
  CallOutcome call(std::string_view function, CallArguments arguments = {});
  Started<CallOutcome> start_call(std::string_view function, CallArguments arguments = {});
  /// "ginProgress" or "rmaProgress"; "" if the plugin has none.
  const std::string& progress() const { return progress_; }
  /// Calls the progress function if the plugin has one. Returns false if it failed.
  bool try_progress() { return progress_.empty() || try_call(progress_).ok(); }

 private:
  Rank rank_;
  std::uint64_t comm_;
  std::uint64_t context_ = 0;
  std::string progress_;
};

/// Memory of all ranks, registered together.
struct Window {
  std::vector<Memory> memory;
  std::vector<std::uint64_t> mhandles;
};

/// A part of a window.
struct WindowPart {
  const Window& window;
  std::size_t offset = 0;
};

/// The arguments of iput from rank `from` to rank `to`, of iget by rank `from`, and of an iputSignal without data;
/// with() adds data to it.
CallArguments put_arguments(const WindowPart& source, const WindowPart& target, std::size_t size, std::size_t from,
                            std::size_t to);
CallArguments get_arguments(const WindowPart& source, const WindowPart& target, std::size_t size, std::size_t from,
                            std::size_t to);
CallArguments signal_arguments(const WindowPart& signal, std::size_t from, std::size_t to, abi::SignalOp op,
                               std::uint64_t value);
/// The arguments of regMrSym.
CallArguments reg_arguments(const Slice& slice, std::uint64_t flags = 0);
CallArguments with(CallArguments arguments, const CallArguments& more);

/// One operation of one rank: posted once, then tested until it is done.
class Operation final : public Step {
 public:
  /// `function`: "iput".
  Operation(OneSidedRank& rank, std::string_view function, CallArguments arguments);

  /// Calls the function. Errors: `CallFailed`; `Deviation` if it stores no request.
  void post();
  bool turn() override;
  bool done() const override { return done_; }
  std::string describe() const override;
  StallLimit stall_limit() const override;

  std::uint64_t request() const { return request_; }
  /// Calls test once. The outcome may be an error.
  CallOutcome try_test();

 private:
  OneSidedRank* rank_;
  std::string function_;
  CallArguments arguments_;
  std::uint64_t request_ = 0;
  bool posted_ = false, done_ = false;
};

/// Calls the progress functions of all ranks in turn until `ready`, as NCCL's progress threads do. Errors: `Deviation`
/// if one fails.
void progress_until(const std::vector<OneSidedRank*>& ranks, const std::function<bool()>& ready);
/// The outcome of a call, with progress_until() it has arrived. Errors: as Started::get() and progress_until().
template <typename Outcome>
Outcome get_with_progress(Started<Outcome>& started, const std::vector<OneSidedRank*>& ranks) {
  progress_until(ranks, [&] { return started.ready() || started.overdue(); });
  return started.get();
}

struct OneSidedOptions {
  int contexts = 1;
  int traffic_class = abi::kContextTrafficClassUndefined;
  int rank_stride = 1;
  /// How much later the last rank calls connect than the others.
  std::chrono::milliseconds lateness = {};
  /// Further arguments of connect, and of createContext.
  CallArguments connect = {}, context = {};
};

/// A collComm of several ranks, each on its device 0.
class OneSidedGroup {
 public:
  /// Listens and connects, closes the listeners, and opens a context if the version's data calls name one. Errors:
  /// `CallFailed`; `Deviation`.
  explicit OneSidedGroup(const std::vector<Rank>& ranks, const OneSidedOptions& options = {});

  std::size_t size() const { return ranks_.size(); }
  OneSidedRank& operator[](std::size_t number) { return ranks_[number]; }

  /// Opens a further context on each rank and returns them. Errors: as the constructor.
  std::vector<std::uint64_t> open_contexts(const OneSidedOptions& options);
  void use_contexts(const std::vector<std::uint64_t>& contexts);
  void close_contexts(const std::vector<std::uint64_t>& contexts);

  /// Allocates `size` bytes on each rank and registers them. `size`: a multiple of 8 if signals go there. Errors:
  /// `CallFailed`; `Deviation` if a handle is NULL.
  Window window(std::size_t size, std::uint64_t flags = 0);
  /// Registers existing memory again. Returns the handles that `output` names; up to v13 there is also "*ginHandle".
  std::vector<std::uint64_t> reg(const std::vector<Slice>& slices, std::uint64_t flags = 0,
                                 std::string_view output = "*mhandle");
  /// Calls a registration function on all ranks, with the arguments of each rank, and returns the handles.
  std::vector<std::uint64_t> register_all(std::string_view function, const std::vector<CallArguments>& arguments,
                                          std::string_view output);
  void dereg(const std::vector<std::uint64_t>& mhandles);
  /// Destroys the contexts and closes the collComm.
  void close();

  /// Calls turn() of each operation until all are done. Each rank has a progress thread in NCCL, so the progress
  /// functions of all ranks are called before each round, except that of rank `without_progress`. Errors: as finish()
  /// in script.h; `Deviation` if a progress function fails.
  void finish(std::vector<Operation>& operations, std::optional<std::size_t> without_progress = {});
  /// get_with_progress() of all ranks.
  template <typename Outcome>
  Outcome get(Started<Outcome>& started) {
    return get_with_progress(started, members());
  }
  /// Finishes operations, and waits until the data of all puts has arrived: a signal from each rank to each rank on
  /// each of the first `contexts` contexts follows them. Errors: as finish(); `Deviation`.
  void deliver(std::vector<Operation>& operations, std::uint64_t contexts = 1);
  /// Waits until 8 bytes of a rank have this value, and compares `data` at that moment with the pattern of `seed`.
  /// Errors: `Deviation`.
  void require_signal(std::size_t number, const Slice& word, std::uint64_t value, const Slice& data = {},
                      std::uint64_t seed = 0);
  /// Puts `size` bytes from each rank to each rank, itself included, and compares them and the bytes around them.
  /// `situation`: text for messages, such as "after closeListen". Errors: `Deviation`; as finish().
  void require_puts(std::size_t size, std::uint64_t seed, std::string_view situation = "");

 private:
  std::vector<CallOutcome> call_all(std::string_view function, const std::vector<CallArguments>& arguments);
  /// All ranks but `without`.
  std::vector<OneSidedRank*> members(std::optional<std::size_t> without = {});

  std::vector<OneSidedRank> ranks_;
};

/// Operations that a rank repeats in a loop inside it.
struct OneSidedLoop {
  /// "iput", and its arguments. "": no operation.
  std::string_view function = {};
  CallArguments arguments = {};
  std::uint64_t count = 0;
  /// Maximum number of operations in flight.
  std::uint32_t window = 1;
  /// An iputSignal behind the last operation, without data. Empty: none.
  CallArguments last = {};
  /// The 8 bytes in which the rank counts signals of its peer; empty: the rank waits for none. In round i, a rank that
  /// `starts` posts its operation and then waits until the number is i + 1. Another rank waits first and then posts.
  Slice signal = {};
  bool starts = false;
};
struct OneSidedLoopOutcome : MeasuredOutcome {
  /// With a signal: half of the time from one signal to the next. With a window of 1: the time of an operation.
  std::uint32_t median_ns = 0;
};
/// Runs on `prog`. The rank's progress function is called while it waits. Errors of `get`: see require_clean().
Started<OneSidedLoopOutcome> start_loop(OneSidedRank& rank, const OneSidedLoop& loop);

}  // namespace plugfest::control
