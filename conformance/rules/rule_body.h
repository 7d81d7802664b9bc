// Base class of rule bodies: access to ranks, faults and random numbers, and the reports of a body.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "conformance/rules/rule.h"
#include "harness/bed/test_bed.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"
#include "harness/report/results.h"

namespace plugfest::bed {
class TestBed;
}

namespace plugfest::conformance {

using namespace control;  // rules are scripts of its calls

class Turn;

/// The clause does not hold. `what()` is for the user: what was expected and what happened.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The clause does not apply to this subject: for example, it has no grouped receives. `what()` is the reason.
class NotApplicable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The clause cannot be checked on this test bed. `what()` is the reason.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Remarks {
  /// Parts of the clause that are [S] and do not hold.
  std::vector<std::string> warnings;
  /// Behavior that the contract leaves to the plugin.
  std::vector<std::string> observations;
};

struct NcclSetting {
  /// A test bed with an out-of-band network. Null: NCCL cannot be run, and rules that run it are skipped.
  bed::TestBed* bed = nullptr;
  /// The network plugin for NCCL: the library's file, or "nccl:IB".
  std::string plugin;
  /// Time limit of an operation of NCCL; by default kCallsOfOperation times the time limit of a call.
  double seconds = 60;
  /// See Limits.
  int stop_fd = -1;

  static constexpr double kCallsOfOperation = 6;
};

/// Settings that all rules of a run share.
struct RunContext {
  /// The library's file; empty for a transport built into NCCL.
  std::string library;
  int api = 0;
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  /// Null if faults cannot be injected: rules that need them are skipped.
  faults::Injector* injector = nullptr;
  NcclSetting nccl = {};
  /// Whether the ranks have a CUDA GPU or an emulated one.
  bool gpu = false;
  /// Whether rules repeat checks more often, and rules with Declaration::thorough run.
  bool thorough = false;
};

/// The settings, ranks and records of one run of a rule.
struct RuleContext : RunContext {
  /// Null in tests of rules that need no rank.
  Lease* lease = nullptr;
  /// As many ranks as the rule declares.
  bed::RankGroup ranks;
  /// Null in tests.
  Turn* turn = nullptr;
  /// Receives the logs of processes that the body has started outside the lease. Null in tests.
  std::vector<report::RankRecord>* records = nullptr;
};

/// The endpoints of a second path between the hosts of `first` that shares no interface with it: "a.eth1" and "b.eth1"
/// for "a.eth0" and "b.eth0". nullopt if there is none.
std::optional<bed::RankPath> second_path(const topology::Graph& graph, const bed::RankPath& first);

/// Base class of every rule's body. One object serves one run of one rule, on one thread.
class RuleBody {
 public:
  virtual ~RuleBody() = default;
  /// Checks the clause. Returns if the clause holds. Throws `Broken`, `NotApplicable`, `Skipped`, or an exception of
  /// harness/control (process/errors.h).
  virtual void run() = 0;

  void enter(const RuleContext& context, std::uint64_t seed) {
    context_ = context;
    random_.seed(seed);
  }
  const Remarks& remarks() const { return remarks_; }

 protected:
  /// A rank and its device towards another rank. Both are numbers from 0 to the rule's `ranks` - 1; a rank uses one
  /// process for all its peers. The plugin is loaded and initialized unless `options` says otherwise.
  Endpoint endpoint(std::size_t rank, std::size_t peer, const RankOptions& options = {}) {
    return context_.lease->endpoint(context_.ranks.ranks.at(rank), context_.ranks.interfaces[rank].at(peer), options);
  }
  /// A rank, for rules that are not about a device.
  Rank rank(std::size_t number, const RankOptions& options = {}) {
    return context_.lease->rank(context_.ranks.ranks.at(number), options);
  }
  /// Rank 0 and its device towards rank 1, and the reverse.
  Endpoint near_endpoint(const RankOptions& options = {}) { return endpoint(0, 1, options); }
  Endpoint far_endpoint(const RankOptions& options = {}) { return endpoint(1, 0, options); }
  /// A further process on the device of far_endpoint(), for rules that stop that one. Lives until the rule ends.
  Endpoint another_far_endpoint() {
    if (!more_) more_.emplace(context_.lease->with_new_ranks());
    return more_->endpoint(context_.ranks.ranks.at(1), context_.ranks.interfaces[1].at(0));
  }
  Rank near_rank(const RankOptions& options = {}) { return rank(0, options); }
  Rank far_rank(const RankOptions& options = {}) { return rank(1, options); }

  /// Takes the interface of rank 1 towards rank 0 down for the lifetime of the result. On a link without a switch the
  /// near rank's interface loses its carrier. No other rule runs until this rule ends, since plugins may use other
  /// interfaces of the host too. Skips the rule if faults cannot be injected.
  faults::ActiveFault take_link_down();
  /// Gives the interface of rank 1 towards rank 0 another address of its subnet, and thus its NIC another GID, for the
  /// lifetime of the result. Returns null if the subnet has no free address. No other rule runs until this rule ends.
  /// Skips the rule if faults cannot be injected.
  std::unique_ptr<faults::ActiveFault> change_far_address();
  /// Sets the MTU of the far rank's interface for the lifetime of the result. No other rule runs until this rule ends.
  /// Skips the rule if faults cannot be injected.
  std::unique_ptr<faults::ActiveFault> shrink_far_mtu(int mtu_bytes);

  /// Waits until the rules that run now, and their ranks, have ended. No other rule runs until this rule ends.
  void be_alone();
  /// Prepares a fault: no other rule runs until this rule ends. Skips the rule if faults cannot be injected.
  void require_injector();

  const RuleContext& context() const { return context_; }
  int api() const { return context_.api; }
  /// `count`, or ten times as many in a thorough run.
  template <typename Count>
  Count repeated(Count count) const {
    return context_.thorough ? 10 * count : count;
  }
  /// Operations that make no progress until it expires count as stalled. Each call returns a new limit.
  StallLimit stall_limit() const { return context_.lease->stall_limit(); }
  /// Time in which a transport must report the loss of a peer. Transports detect it with their own timers, which are
  /// longer than the deadline of a call.
  StallLimit detection_limit() const { return stall_limit().times(6); }

  /// Generator of random numbers that depend only on the run's seed and the rule's id.
  std::mt19937_64& random() { return random_; }
  /// Uniform in first..last, both included. The same with every C++ standard library.
  std::uint64_t random_between(std::uint64_t first, std::uint64_t last) {
    return first + random_() % (last - first + 1);
  }

  [[noreturn]] void broken(const std::string& message) { throw Broken(message); }
  [[noreturn]] void not_applicable(const std::string& reason) { throw NotApplicable(reason); }
  [[noreturn]] void skip(const std::string& reason) { throw Skipped(reason); }

  /// Ends the rule as broken unless `holds`. `message`: a string, or a function that returns it, for checks that run
  /// often: expect(size == 8, [&] { return fmt::format("got {}", size); }).
  template <typename Message>
  void expect(bool holds, const Message& message) {
    if (!holds) broken(text_of(message));
  }
  /// Records a warning unless `holds`, for a part of the clause that is only [S]. The body continues. `message`: see
  /// expect().
  template <typename Message>
  void should(bool holds, const Message& message) {
    if (!holds) remarks_.warnings.push_back(text_of(message));
  }
  /// Runs `part`. While it runs, near_endpoint(), far_endpoint(), near_rank() and far_rank() return new processes,
  /// which are killed afterwards, so that the state of the other ranks does not change. `part` must not use ranks from
  /// outside. Errors: whatever `part` throws.
  void on_new_ranks(const std::function<void()>& part);
  /// Runs `part` like on_new_ranks(), for a part of the clause that is only [S] and may crash or hang: a failure in it
  /// (a crash, a hang, an error code, `expect`) is a warning, and the body continues.
  ///
  /// `situation`: what happened before the failure, for its message.
  ///
  ///   probe([&] { near_rank().try_close_send(0); });
  void probe(const std::function<void()>& part, const std::function<std::string()>& situation = {});
  /// Runs `part`, for a part of the clause that is only [S] unless `must`: then like probe().
  void require_or_probe(bool must, const std::function<void()>& part) { must ? part() : probe(part); }
  /// Runs `part`, for rules about result codes: a code that no plugin may return breaks this rule. Outside `part`, such
  /// a code breaks the rule that covers undefined codes, and this rule gets no verdict. Errors: whatever `part` throws.
  void check_codes(const std::function<void()>& part);
  /// Records behavior that the contract leaves to the plugin.
  void observe(const std::string& message) { remarks_.observations.push_back(message); }

 private:
  template <typename Message>
  static std::string text_of(const Message& message) {
    if constexpr (std::is_invocable_v<const Message&>)
      return message();
    else
      return std::string(message);
  }
  RuleContext context_;
  std::mt19937_64 random_;
  Remarks remarks_;
  std::optional<control::Lease> more_;
};

}  // namespace plugfest::conformance
