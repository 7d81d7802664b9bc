// CollNet communicators for rules: ranks that are connected to each other, registered memory, collectives as steps, and
// vectors whose reduction is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "harness/control/joining.h"
#include "harness/control/script.h"
#include "harness/nccl/pattern.h"

namespace plugfest::conformance {

/// A data type and an operation of NCCL: abi::DataType and abi::ReduceOp.
struct Reduction {
  int type = 0;
  int op = 0;
};
inline constexpr int kCollNetOps = 4;

/// The elements of all members and of their reduction, which are exact in every order. `type`: not an 8-bit
/// floating-point number.
nccl::Pattern pattern_of(const Reduction& reduction, std::size_t ranks, std::uint64_t seed);
/// Bytes of an element: 1, 2, 4 or 8.
std::size_t element_size(int type);
/// `count` elements of rank `rank`.
std::vector<std::byte> contribution(const nccl::Pattern& pattern, int type, std::size_t rank, std::size_t count);

/// Memory of a rank, registered with its collComm.
struct RegisteredMemory {
  control::Memory memory;
  std::uint64_t mhandle = 0;
};

/// The endpoint of a rank in a communicator.
struct Member : control::Joined {
  RegisteredMemory allocate(std::size_t size) const;
  /// Registers a range again.
  std::uint64_t reg(const control::Slice& slice) const;
  void dereg(std::uint64_t mhandle) const;
  void close() const;
};

/// One collective of one rank: posted until the plugin accepts it, then tested until it is done. As in NCCL, *done is 1
/// before each test, so a plugin that does not write it ends the collective too early.
class Collective final : public control::Step {
 public:
  /// `function`: "iallreduce". `arguments`: all but collComm and *request.
  Collective(const Member& member, std::string_view function, control::CallArguments arguments);

  bool turn() override;
  bool done() const override { return done_; }
  std::string describe() const override;
  control::StallLimit stall_limit() const override;

  /// Sets *request before post() to a pointer of an earlier request.
  void preset(std::uint64_t request) { arguments_.insert_or_assign("*request", control::CallArgument(request)); }
  /// Calls the function once. Returns whether the plugin has accepted it. Errors: `Broken` if *request is not written.
  bool post();
  /// Calls test once. The outcome may be an error.
  control::CallOutcome try_test();
  std::uint64_t request() const { return request_; }

 private:
  control::Rank rank_;
  std::string function_;
  control::CallArguments arguments_;
  std::uint64_t request_ = 0;
  bool done_ = false;
};

/// Calls turn() of each collective until all are done. Errors: whatever control::finish() throws.
void finish(std::vector<Collective>& collectives);

/// The arguments of iallreduce.
control::CallArguments allreduce_arguments(const Reduction& reduction, std::size_t count, const control::Buffer& from,
                                           const control::Buffer& to);

std::vector<Member> members_of(std::vector<control::Joined> joined);
/// A communicator of all `ranks`, in this order. Errors: whatever control::Joining::get_all() throws.
std::vector<Member> connect_all(const std::vector<control::Rank>& ranks);

/// The vectors of one allreduce in registered memory of all members.
class Vectors {
 public:
  /// Where the result of a member goes: memory of its own, with a guard page behind input and result; the second half
  /// of one registration; the input's memory.
  enum class Result : std::uint8_t { kApart, kOtherHalf, kInPlace };

  /// Writes the input of each member.
  Vectors(std::vector<Member> members, const Reduction& reduction, std::size_t count, std::uint64_t seed,
          Result place = Result::kApart);
  /// Writes the inputs of another reduction, of at most as many bytes, to the end of the same memory.
  void refill(const Reduction& reduction, std::size_t count, std::uint64_t seed);

  control::Buffer input(std::size_t member) const { return end_of(inputs_[member]); }
  control::Buffer result(std::size_t member) const { return end_of(results_[member]); }
  Collective allreduce(std::size_t member) const;
  /// The allreduce of each member, in the order of the members.
  std::vector<Collective> allreduces() const;
  /// Reduces over all members, and compares. `situation`: see require_results(). Errors: see finish(); `Broken`.
  void reduce(std::string_view situation = "") const;
  /// Deregisters the memory of a member, as NCCL does before closeColl.
  void dereg(std::size_t member) const;
  /// Compares all results, and the inputs unless they are in place. `situation`: text for messages, such as "after
  /// closeListen". Errors: `Broken`.
  void require_results(std::string_view situation = "") const;

 private:
  control::Buffer end_of(const control::Buffer& buffer) const;

  std::vector<Member> members_;
  Result place_;
  Reduction reduction_;
  std::size_t count_;
  std::uint64_t seed_;
  std::vector<control::Buffer> inputs_, results_;
};

/// Reduces `count` elements over all members in new memory, and compares. `situation`: see Vectors::require_results().
/// Errors: `Broken`.
void require_reduction(const std::vector<Member>& members, const Reduction& reduction, std::size_t count,
                       std::uint64_t seed, std::string_view situation = "");

/// The pairs that every member supports.
std::vector<Reduction> supported_reductions(const std::vector<Member>& members);

/// Base of rules about a plugin after init.
class CollNetRule : public InterfaceRule {
 protected:
  /// Connects all ranks of the rule.
  std::vector<Member> connected() { return connect_all(all_ranks()); }
  /// A further communicator of `ranks`. Errors: `NotApplicable` if connect fails, since NCCL then continues without it:
  /// networks have limits, such as an exclusive lock.
  std::vector<Member> connected_again(const std::vector<Rank>& ranks);
  /// A pair that all members support: the sum of 32-bit integers if they do. Errors: `NotApplicable` if there is none.
  Reduction usual_reduction(const std::vector<Member>& members);
};

}  // namespace plugfest::conformance
