#include "conformance/model/one_sided.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model/model.h"

namespace plugfest::model {
namespace {

using control::CallArguments;
using control::OneSidedGroup;
using control::Window;
using control::with;

constexpr std::uint8_t kUnwritten = 0x5a;

// Runs the rounds of a schedule: each fills the sources anew, posts the operations of all ranks, waits until they are
// complete, and compares the targets and the signals with the plan.
class Operations {
 public:
  Operations(OneSidedGroup& group, const Schedule& schedule, Played& played)
      : group_(group), schedule_(schedule), played_(played), plan_(model::plan(schedule)) {
    source_ = group.window(std::max<std::size_t>(plan_.source_bytes, 8));
    target_ = group.window(std::max<std::size_t>(plan_.target_bytes, 8));
    signals_ = group.window(kSignals * sizeof(std::uint64_t), abi::kForceStrictOrder);
  }

  void run() {
    for (const Round& round : plan_.rounds) {
      ++round_;
      for (std::size_t rank = 0; rank < group_.size(); ++rank) {
        group_[rank].rank().fill(source_.memory[rank], seed_of(rank));
        group_[rank].rank().set(target_.memory[rank], kUnwritten);
      }
      std::vector<control::Operation> operations;
      for (const OperationPlan& planned : round.operations) operations.push_back(operation(planned));
      group_.deliver(operations, abi::has_gets_and_contexts(group_[0].rank().api()) ? kContexts : 1);
      for (const OperationPlan& planned : round.operations) compare(planned);
      for (std::size_t rank = 0; rank < group_.size(); ++rank) compare_signals(rank, round);
      if (played_.deviation) return;
    }
    for (const Window* window : {&source_, &target_, &signals_}) group_.dereg(window->mhandles);
  }

 private:
  const OneSided& step_of(const OperationPlan& planned) const {
    return std::get<OneSided>(schedule_.steps[planned.step]);
  }
  std::uint64_t seed_of(std::size_t rank) const { return schedule_.seed + round_ * kMaxRanks + rank; }

  control::Operation operation(const OperationPlan& planned) {
    const OneSided& step = step_of(planned);
    CallArguments arguments = {{"context", step.context}};
    if (step.signal)
      arguments = with(control::signal_arguments({signals_, *step.signal * sizeof(std::uint64_t)}, step.from, step.to,
                                                 step.add ? abi::kSignalAdd : abi::kSignalInc, step.add.value_or(0)),
                       arguments);
    const auto data = step.get ? control::get_arguments : control::put_arguments;
    if (step.bytes > 0)
      arguments =
          with(data({source_}, {target_, planned.offset}, step.bytes, step.initiator(), step.peer()), arguments);
    return {group_[step.initiator()], step.get ? "iget" : step.signal ? "iputSignal" : "iput", std::move(arguments)};
  }

  // The first deviation counts.
  void deviate(const std::string& what, std::optional<std::size_t> step) {
    if (!played_.deviation) played_.deviation = {what, step, {}};
  }

  void compare(const OperationPlan& planned) {
    const OneSided& step = step_of(planned);
    ++played_.messages;
    if (step.bytes == 0) return;
    played_.bytes += step.bytes;
    control::Rank& rank = group_[step.to].rank();
    const control::Memory& memory = target_.memory[step.to];
    const auto require = [&](const control::Check& check, const char* which) {
      if (!check)
        deviate(fmt::format("rank {}: {} a {} of {} bytes from rank {}: {}", rank.name(), which,
                            step.get ? "get" : "put", step.bytes, group_[step.from].name(), check.difference),
                planned.step);
    };
    require(rank.check(memory.sub(planned.offset, step.bytes), seed_of(step.from)), "the bytes of");
    require(rank.check_set(memory.sub(planned.offset + step.bytes, kGapBytes), kUnwritten), "64 bytes after");
  }

  // deliver() has waited for a later signal of each rank on each context, so these signals no longer change.
  void compare_signals(std::size_t rank, const Round& round) {
    const std::vector<std::byte> bytes = group_[rank].rank().read(signals_.memory[rank]);
    for (unsigned signal = 0; signal < kSignals; ++signal) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + signal * sizeof value, sizeof value);
      const std::uint64_t expected = round.signals[kSignals * rank + signal];
      if (value != expected)
        deviate(fmt::format("rank {}: signal {} is {}, expected {}", group_[rank].name(), signal, value, expected),
                std::nullopt);
    }
  }

  OneSidedGroup& group_;
  const Schedule& schedule_;
  Played& played_;
  const Plan plan_;
  Window source_, target_, signals_;
  std::uint64_t round_ = 0;
};

}  // namespace

void play_operations(OneSidedGroup& group, const Schedule& schedule, Played& played) {
  Operations(group, schedule, played).run();
}

}  // namespace plugfest::model
