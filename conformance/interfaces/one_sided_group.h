// Communicators of GIN and RMA for rules: ranks that are connected to each other, symmetric memory, and one-sided
// operations as steps. Rules name parameters of any version; those that the version in use lacks are not passed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "harness/abi/one_sided.h"
#include "harness/control/script.h"

namespace plugfest::conformance {

/// A rank's end of a collComm, with one context.
class OneSidedRank {
 public:
  OneSidedRank(control::Rank rank, std::uint64_t comm) : rank_(std::move(rank)), comm_(comm) {}

  control::Rank& rank() { return rank_; }
  const std::string& name() const { return rank_.name(); }
  std::uint64_t comm() const { return comm_; }
  std::uint64_t context() const { return context_; }
  void use_context(std::uint64_t context) { context_ = context; }

  /// Call a function with its comm, its context, and `arguments`.
  control::CallOutcome try_call(std::string_view function, control::CallArguments arguments = {}) {
    return start_call(function, std::move(arguments)).get();
  }
  control::CallOutcome call(std::string_view function, control::CallArguments arguments = {});
  control::Started<control::CallOutcome> start_call(std::string_view function, control::CallArguments arguments = {});
  /// Looks for ginProgress or rmaProgress, which the plugin need not have.
  void find_progress();
  /// Calls it, if there is one. Returns whether it succeeded.
  bool try_progress() { return progress_.empty() || try_call(progress_).ok(); }

 private:
  control::Rank rank_;
  std::uint64_t comm_;
  std::uint64_t context_ = 0;
  std::string progress_;
};

/// Memory of all ranks, registered together.
struct Window {
  std::vector<control::Memory> memory;
  std::vector<std::uint64_t> mhandles;
};

/// A part of a window.
struct WindowPart {
  const Window& window;
  std::size_t offset = 0;
};

/// The arguments of iput from rank `from` to rank `to`, of iget by rank `from`, and of an iputSignal without data;
/// with() adds data to it.
control::CallArguments put_arguments(const WindowPart& source, const WindowPart& target, std::size_t size,
                                     std::size_t from, std::size_t to);
control::CallArguments get_arguments(const WindowPart& source, const WindowPart& target, std::size_t size,
                                     std::size_t from, std::size_t to);
control::CallArguments signal_arguments(const WindowPart& signal, std::size_t from, std::size_t to, abi::SignalOp op,
                                        std::uint64_t value);
control::CallArguments with(control::CallArguments arguments, const control::CallArguments& more);

/// One operation of one rank: posted once, then tested until it is done, with the progress function before each test.
class Operation final : public control::Step {
 public:
  /// `function`: "iput". `tested_alone`: never calls the progress function.
  Operation(OneSidedRank& rank, std::string_view function, control::CallArguments arguments, bool tested_alone = false);

  /// Calls the function. Errors: `CallFailed`; `Broken` if it stores no request.
  void post();
  bool turn() override;
  bool done() const override { return done_; }
  std::string describe() const override;
  control::StallLimit stall_limit() const override;

  std::uint64_t request() const { return request_; }
  /// Calls test once. The outcome may be an error.
  control::CallOutcome try_test();

 private:
  OneSidedRank* rank_;
  std::string function_;
  control::CallArguments arguments_;
  bool tested_alone_;
  std::uint64_t request_ = 0;
  bool posted_ = false, done_ = false;
};

/// Turns all operations until all are done. Errors: as control::finish().
void finish(std::vector<Operation>& operations);

struct OneSidedOptions {
  int contexts = 1;
  int traffic_class = abi::kContextTrafficClassUndefined;
  int rank_stride = 1;
  /// How much later the last rank calls connect than the others.
  std::chrono::milliseconds lateness = {};
};

/// A collComm of several ranks, each on its device 0.
class OneSidedGroup {
 public:
  /// Listens and connects, closes the listeners, and opens a context if the version's data calls name one. Errors:
  /// `CallFailed`; `Broken`.
  explicit OneSidedGroup(const std::vector<control::Rank>& ranks, const OneSidedOptions& options = {});

  std::size_t size() const { return ranks_.size(); }
  OneSidedRank& operator[](std::size_t number) { return ranks_[number]; }

  /// Opens a further context on each rank and returns them. Errors: as the constructor.
  std::vector<std::uint64_t> open_contexts(const OneSidedOptions& options);
  void use_contexts(const std::vector<std::uint64_t>& contexts);
  void close_contexts(const std::vector<std::uint64_t>& contexts);

  /// Allocates `size` bytes on each rank and registers them. `size`: a multiple of 8 if signals go there. Errors:
  /// `CallFailed`; `Broken` if a handle is NULL.
  Window window(std::size_t size, std::uint64_t flags = 0);
  /// Registers existing memory again.
  std::vector<std::uint64_t> reg(const std::vector<control::Slice>& slices, std::uint64_t flags = 0);
  void dereg(const std::vector<std::uint64_t>& mhandles);
  /// Destroys the contexts and closes the collComm.
  void close();

  /// Finishes operations, and waits until the data of all puts has arrived: a signal from each rank to each rank
  /// follows them. Errors: as finish(); `Broken`.
  void deliver(std::vector<Operation>& operations);
  /// Waits until 8 bytes of a rank have this value, and compares `data` at that moment with the pattern of `seed`.
  /// Errors: `Broken`.
  void require_signal(std::size_t number, const control::Slice& word, std::uint64_t value,
                      const control::Slice& data = {}, std::uint64_t seed = 0);
  /// Puts `size` bytes from each rank to each rank, itself included, and compares them and the bytes around them.
  /// `situation`: for messages, "after closeListen". Errors: `Broken`; as finish().
  void require_puts(std::size_t size, std::uint64_t seed, std::string_view situation = "");

 private:
  std::vector<control::CallOutcome> call_all(std::string_view function,
                                             const std::vector<control::CallArguments>& arguments);

  std::vector<OneSidedRank> ranks_;
};

/// Errors: `Broken` if the bytes differ. `what`: "a put of 8 bytes".
void require_same(const control::Check& check, const std::string& what);

/// Base of rules about a plugin after init.
class OneSidedRule : public RuleBody {
 protected:
  /// The ranks of the rule. Errors: `NotApplicable` if init fails or devices writes 0, since NCCL then goes on without
  /// the interface.
  std::vector<control::Rank> all_ranks();
  OneSidedGroup connected(const OneSidedOptions& options = {}) { return OneSidedGroup(all_ranks(), options); }
  /// Whether data calls name a context, and iget and iflush exist.
  bool has_contexts() const { return api() >= 13; }
};

}  // namespace plugfest::conformance
