#include "conformance/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace plugfest::model {
namespace {

constexpr std::uint64_t kMaxMemory = 1u << 30;

struct Comm {
  CommPlan connection;
  bool closed = false;
};

// Memory for a group: each message and the bytes that are checked after it.
std::uint64_t memory_of(const std::vector<wire::ProgramMessage>& messages) {
  std::uint64_t bytes = 0;
  for (const wire::ProgramMessage& message : messages) bytes += wire::program_stride(message);
  return bytes;
}

class Planner {
 public:
  explicit Planner(const Schedule& schedule) : schedule_(schedule), signals_(kSignals * schedule.ranks.size()) {
    plan_.programs.resize(schedule.ranks.size());
  }

  // Adds step `number`. Errors: InvalidStep; the step then has no effect.
  void add(std::size_t number) {
    number_ = number;
    const Step& next = schedule_.steps.at(number);
    const bool one_sided = std::holds_alternative<OneSided>(next) || std::holds_alternative<Compare>(next);
    if (one_sided && schedule_.interface.empty())
      refuse("a net has no such step: expected a line interface: gin or rma");
    if (!one_sided && !schedule_.interface.empty())
      refuse("{} has no such step: expected put, get or compare", schedule_.interface);
    std::visit([this](const auto& step) { add(step); }, next);
  }

  Plan finish() {
    number_ = schedule_.steps.size();
    add(Compare{});
    for (auto& [name, comm] : comms_)
      if (!comm.closed) add(Close{name});
    for (const auto& [name, comm] : comms_) plan_.connections.push_back(comm.connection);
    return std::move(plan_);
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    throw InvalidStep(number_, fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  void add(const Connect& step) {
    if (comms_.contains(step.comm)) refuse("comm {} is already connected", step.comm);
    if (comms_.size() == kMaxComms) refuse("there are {} comms already", kMaxComms);
    CommPlan connection{step.from, step.to, 0, 0};
    connection.from_comm = add_end(step, step.from, true);
    connection.to_comm = add_end(step, step.to, false);
    comms_[step.comm] = {connection, false};
    add_to_both(connection, {.action = wire::ProgramAction::kConnect});
  }

  std::size_t add_end(const Connect& step, unsigned rank, bool sends) {
    std::vector<wire::ProgramComm>& comms = plan_.programs.at(rank).comms;
    comms.push_back({.sends = sends, .window = step.window, .oldest_only = step.oldest_only});
    return comms.size() - 1;
  }

  void add(const Transfer& step) {
    const CommPlan& connection = open_comm(step.comm);
    wire::ProgramStep sender{.action = wire::ProgramAction::kTransfer, .repeat = step.repeat};
    wire::ProgramStep receiver = sender;
    deliver(step, sender.messages, receiver.messages);
    wire::ProgramComm& from = plan_.programs[connection.from].comms[connection.from_comm];
    wire::ProgramComm& to = plan_.programs[connection.to].comms[connection.to_comm];
    const std::uint64_t before = (from.group_bytes + to.group_bytes) * from.window;
    from.group_bytes = std::max(from.group_bytes, memory_of(sender.messages));
    to.group_bytes = std::max(to.group_bytes, memory_of(receiver.messages));
    memory_ += (from.group_bytes + to.group_bytes) * from.window - before;
    if (memory_ > kMaxMemory) refuse("with it the schedule takes more than 1 GiB of memory");
    add_to(connection.from, connection.from_comm, std::move(sender));
    add_to(connection.to, connection.to_comm, std::move(receiver));
  }

  // Applies the contract: each send fills the first free buffer with its tag.
  void deliver(const Transfer& step, std::vector<wire::ProgramMessage>& sends,
               std::vector<wire::ProgramMessage>& buffers) const {
    const std::size_t count = step.messages.size();
    if (count == 0 || count > kMaxMessages) refuse("expected 1 to {} messages", kMaxMessages);
    const std::vector<unsigned> all = in_order(count);
    if (!std::is_permutation(step.sends.begin(), step.sends.end(), all.begin(), all.end()))
      refuse("sends: expected each of 0 to {} once", count - 1);
    buffers.resize(count);
    std::vector<bool> filled(count, false);
    for (const unsigned index : step.sends) {
      const Message& message = step.messages[index];
      const std::uint64_t contents = schedule_.seed + (number_ << 8) + index;
      sends.push_back({message.tag, message.bytes, message.bytes, contents});
      std::size_t buffer = 0;
      while (filled[buffer] || step.messages[buffer].tag != message.tag) ++buffer;
      filled[buffer] = true;
      const std::uint32_t room = step.messages[buffer].room;
      if (message.bytes > room)
        refuse("a message of {} bytes with tag {} does not fit into the room of {}", message.bytes, message.tag, room);
      buffers[buffer] = {message.tag, message.bytes, room, contents};
    }
  }

  void add(const Pause& step) {
    wire::ProgramStep pause{.action = wire::ProgramAction::kPause};
    pause.pause_us = step.us;
    add_to(step.rank, 0, std::move(pause));
  }

  void add(const Register& step) { add_to_both(open_comm(step.comm), {.action = wire::ProgramAction::kRegister}); }

  void add(const Freeze& step) { plan_.freezes.push_back(step); }

  void add(const Close& step) {
    const CommPlan& connection = open_comm(step.comm);
    comms_[step.comm].closed = true;
    // Faults may hit the last acknowledgement. A destroyed queue pair cannot repeat it, and the sender then fails.
    if (schedule_.faults.empty()) add_to_both(connection, {.action = wire::ProgramAction::kClose});
  }

  void add(const OneSided& step) {
    if (step.bytes == 0 && !step.signal) refuse("expected bytes or a signal");
    if (step.get && step.signal) refuse("a get has no signal");
    if (step.add && !step.signal) refuse("add needs a signal");
    unsigned& in_flight = in_flight_[{step.initiator(), step.peer()}];
    if (in_flight == kMaxInFlight)
      refuse("{} operations of the rank to the other one are in flight: expected a compare before it", kMaxInFlight);
    std::size_t& end = ends_[step.to];
    const std::size_t room = step.bytes == 0 ? 0 : step.bytes + kGapBytes;
    if ((end + room) * schedule_.ranks.size() > kMaxMemory)
      refuse("with it the schedule takes more than 1 GiB of memory");
    ++in_flight;
    round_.operations.push_back({number_, end});
    end += room;
    plan_.source_bytes = std::max<std::size_t>(plan_.source_bytes, step.bytes);
    plan_.target_bytes = std::max(plan_.target_bytes, end);
    if (step.signal) signals_[kSignals * step.to + *step.signal] += step.add.value_or(1);
  }

  void add(const Compare&) {
    if (!round_.operations.empty()) plan_.rounds.push_back({std::exchange(round_, {}).operations, signals_});
    in_flight_.clear();
    ends_.clear();
  }

  const CommPlan& open_comm(unsigned name) const {
    const auto found = comms_.find(name);
    if (found == comms_.end()) refuse("comm {} is not connected", name);
    if (found->second.closed) refuse("comm {} is closed", name);
    return found->second.connection;
  }

  void add_to_both(const CommPlan& connection, const wire::ProgramStep& step) {
    add_to(connection.from, connection.from_comm, step);
    add_to(connection.to, connection.to_comm, step);
  }
  void add_to(unsigned rank, std::size_t comm, wire::ProgramStep step) {
    step.number = static_cast<std::uint32_t>(number_);
    step.comm = static_cast<std::uint32_t>(comm);
    plan_.programs.at(rank).steps.push_back(std::move(step));
  }

  const Schedule& schedule_;
  Plan plan_;
  std::size_t number_ = 0;
  std::uint64_t memory_ = 0;
  std::map<unsigned, Comm> comms_;
  // For GIN and RMA: the operations since the last comparison, their number by initiator and peer, and the memory that
  // they use at each rank.
  Round round_;
  std::map<std::pair<unsigned, unsigned>, unsigned> in_flight_;
  std::map<unsigned, std::size_t> ends_;
  std::vector<std::uint64_t> signals_;
};

}  // namespace

Plan plan(const Schedule& schedule) {
  Planner planner(schedule);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) planner.add(i);
  return planner.finish();
}

Schedule without_invalid_steps(const Schedule& schedule) {
  Schedule kept = schedule;
  kept.steps.clear();
  Planner planner(schedule);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    try {
      planner.add(i);
      kept.steps.push_back(schedule.steps[i]);
    } catch (const InvalidStep&) {
      // An earlier step that this step needs was removed.
    }
  }
  return kept;
}

std::size_t widest_group(const Schedule& schedule) {
  std::size_t widest = 1;
  for (const Step& step : schedule.steps)
    if (const auto* transfer = std::get_if<Transfer>(&step)) widest = std::max(widest, transfer->messages.size());
  return widest;
}

}  // namespace plugfest::model
