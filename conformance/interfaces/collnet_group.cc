#include "conformance/interfaces/collnet_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/abi/coll_net.h"
#include "harness/control/rank_process.h"

namespace plugfest::conformance {
namespace {

using namespace control;

nccl::device::Type type_of(int type) { return static_cast<nccl::device::Type>(type); }

}  // namespace

nccl::Pattern pattern_of(const Reduction& reduction, std::size_t ranks, std::uint64_t seed) {
  return {seed, type_of(reduction.type), static_cast<nccl::RedOp>(reduction.op), static_cast<int>(ranks)};
}

std::size_t element_size(int type) { return nccl::device::size_of(type_of(type)); }

std::vector<std::byte> contribution(const nccl::Pattern& pattern, int type, std::size_t rank, std::size_t count) {
  std::vector<std::byte> bytes(count * element_size(type));
  pattern.fill(bytes.data(), static_cast<int>(rank), 0, count);
  return bytes;
}

RegisteredMemory Member::allocate(std::size_t size) const {
  Rank copy = rank;
  Memory memory = copy.allocate(size);
  return {memory, reg(memory)};
}

std::uint64_t Member::reg(const Slice& slice) const {
  Rank copy = rank;
  const CallOutcome outcome = copy.call("regMr", {{"collComm", comm},
                                                  {"data", slice.address},
                                                  {"size", slice.size},
                                                  {"type", static_cast<int>(abi::kPointerHost)}});
  return outcome.untouched("*mhandle") ? 0 : outcome.pointer("*mhandle");
}

void Member::dereg(std::uint64_t mhandle) const {
  Rank copy = rank;
  copy.call("deregMr", {{"collComm", comm}, {"mhandle", mhandle}});
}

void Member::close() const {
  Rank copy = rank;
  copy.call("closeColl", {{"collComm", comm}});
}

Collective::Collective(const Member& member, std::string_view function, CallArguments arguments)
    : rank_(member.rank), function_(function), arguments_(std::move(arguments)) {
  arguments_.insert_or_assign("collComm", CallArgument(member.comm));
}

bool Collective::post() {
  const CallOutcome outcome = rank_.call(function_, arguments_);
  // A plugin may use the memory of an earlier request again.
  if (outcome.untouched("*request") && !arguments_.contains("*request"))
    throw Broken(fmt::format("{} succeeded and did not write *request, expected a request or NULL", outcome.call));
  request_ = outcome.pointer("*request");
  return request_ != 0;
}

CallOutcome Collective::try_test() {
  CallOutcome outcome = rank_.try_call("test", {{"request", request_}, {"*done", 1}});
  done_ = outcome.ok() && outcome.integer("*done") != 0;
  return outcome;
}

bool Collective::turn() {
  if (request_ == 0) {
    post();
    return false;
  }
  require_success(try_test());
  return done_;
}

std::string Collective::describe() const {
  const std::string state = request_ == 0 ? "not accepted" : fmt::format("request 0x{:x}", request_);
  return fmt::format("rank {}: {} ({})", rank_.name(), function_, state);
}

StallLimit Collective::stall_limit() const { return rank_.rank_process()->stall_limit(); }

void finish(std::vector<Collective>& collectives) {
  std::vector<Step*> steps;
  for (Collective& collective : collectives) steps.push_back(&collective);
  control::finish(steps);
}

CallArguments allreduce_arguments(const Reduction& reduction, std::size_t count, const Buffer& from, const Buffer& to) {
  return {{"sendData", from.slice.address}, {"recvData", to.slice.address}, {"count", count},
          {"dataType", reduction.type},     {"redOp", reduction.op},        {"sendMhandle", from.mhandle},
          {"recvMhandle", to.mhandle}};
}

std::vector<Member> members_of(std::vector<Joined> joined) {
  std::vector<Member> members;
  for (Joined& one : joined) members.push_back({std::move(one)});
  return members;
}

std::vector<Member> connect_all(const std::vector<Rank>& ranks) {
  Joining joining(ranks);
  joining.start_all();
  return members_of(joining.get_all());
}

Vectors::Vectors(std::vector<Member> members, const Reduction& reduction, std::size_t count, std::uint64_t seed,
                 Result place)
    : members_(std::move(members)), place_(place) {
  const std::size_t bytes = count * element_size(reduction.type);
  for (const Member& member : members_) {
    const RegisteredMemory memory = member.allocate(place == Result::kOtherHalf ? 2 * bytes : bytes);
    inputs_.push_back({memory.memory.sub(0, bytes), memory.mhandle});
    const RegisteredMemory other = place == Result::kApart ? member.allocate(bytes) : memory;
    results_.push_back({other.memory.sub(other.memory.size() - bytes, bytes), other.mhandle});
  }
  refill(reduction, count, seed);
}

void Vectors::refill(const Reduction& reduction, std::size_t count, std::uint64_t seed) {
  reduction_ = reduction;
  count_ = count;
  seed_ = seed;
  const nccl::Pattern pattern = pattern_of(reduction, members_.size(), seed);
  for (std::size_t i = 0; i < members_.size(); ++i)
    Rank(members_[i].rank).write(input(i).slice.address, contribution(pattern, reduction.type, i, count));
}

Buffer Vectors::end_of(const Buffer& buffer) const {
  const std::size_t bytes = count_ * element_size(reduction_.type);
  return buffer.sub(buffer.slice.size - bytes, bytes);
}

Collective Vectors::allreduce(std::size_t member) const {
  return {members_[member], "iallreduce", allreduce_arguments(reduction_, count_, input(member), result(member))};
}

std::vector<Collective> Vectors::allreduces() const {
  std::vector<Collective> collectives;
  for (std::size_t i = 0; i < members_.size(); ++i) collectives.push_back(allreduce(i));
  return collectives;
}

void Vectors::reduce(std::string_view situation) const {
  std::vector<Collective> collectives = allreduces();
  finish(collectives);
  require_results(situation);
}

void Vectors::dereg(std::size_t member) const {
  members_[member].dereg(inputs_[member].mhandle);
  if (place_ == Result::kApart) members_[member].dereg(results_[member].mhandle);
}

void Vectors::require_results(std::string_view situation) const {
  const nccl::Pattern pattern = pattern_of(reduction_, members_.size(), seed_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Rank rank = members_[i].rank;
    const auto refuse = [&](std::string_view what, const nccl::Differences& differences) {
      if (differences.count == 0) return;
      throw Broken(fmt::format("rank {}: {} of iallreduce{}{} of {} elements (type {}, op {}): {}", rank.name(), what,
                               situation.empty() ? "" : " ", situation, count_, reduction_.type, reduction_.op,
                               differences.first));
    };
    refuse("result", pattern.compare_sum(rank.read(result(i).slice).data(), 0, count_));
    if (place_ != Result::kInPlace)
      refuse("input", pattern.compare(rank.read(input(i).slice).data(), static_cast<int>(i), 0, count_));
  }
}

void require_reduction(const std::vector<Member>& members, const Reduction& reduction, std::size_t count,
                       std::uint64_t seed, std::string_view situation) {
  const Vectors vectors(members, reduction, count, seed);
  vectors.reduce(situation);
  for (std::size_t i = 0; i < members.size(); ++i) vectors.dereg(i);
}

std::vector<Reduction> supported_reductions(const std::vector<Member>& members) {
  std::vector<Reduction> supported;
  for (int type = 0; type <= abi::kBfloat16; ++type)
    for (int op = 0; op < kCollNetOps; ++op) {
      const auto supports = [&](const Member& member) {
        Rank rank = member.rank;
        return rank.call("reduceSupport", {{"dataType", type}, {"redOp", op}}).integer("*supported") == 1;
      };
      if (std::all_of(members.begin(), members.end(), supports)) supported.push_back({type, op});
    }
  return supported;
}

std::vector<Member> CollNetRule::connected_again(const std::vector<Rank>& ranks) {
  try {
    return connect_all(ranks);
  } catch (const CallFailed& failure) {
    not_applicable(fmt::format("no second communicator at a time: {}", failure.what()));
  }
}

Reduction CollNetRule::usual_reduction(const std::vector<Member>& members) {
  const std::vector<Reduction> supported = supported_reductions(members);
  if (supported.empty()) not_applicable("reduceSupport wrote 0 for every data type and operation");
  const auto usual = std::find_if(supported.begin(), supported.end(),
                                  [](const Reduction& one) { return one.type == abi::kInt32 && one.op == abi::kSum; });
  return usual == supported.end() ? supported.front() : *usual;
}

}  // namespace plugfest::conformance
