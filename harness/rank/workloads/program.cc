#include "harness/rank/workloads/program.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "fabric/system/text.h"
#include "harness/rank/memory.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

constexpr std::uint64_t kPreset = 0x5aa55aa5'5aa55aa5ull;
constexpr std::size_t kOverwrittenBytes = 4096;  // bytes of a send buffer that are overwritten when the send is done

void require(const ProgramStep& step, const std::string& what, const CallAnswer& answer) {
  if (answer.code != 0) throw Deviates{step.number, fmt::format("{} returned {}", what, code_text(answer.code))};
  if (!answer.damage.empty()) throw Deviates{step.number, fmt::format("{} {}", what, answer.damage)};
}

}  // namespace

CommEnd::CommEnd(const Program& program, const ProgramComm& comm, ProgramAnswer& answer)
    : program_(program), comm_(comm), answer_(answer), stale_(comm.window, kPreset) {
  for (std::size_t slot = comm.window; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

bool CommEnd::turn() {
  bool moved = false;
  while (!steps_.empty()) {
    const ProgramStep& step = *steps_.front();
    if (step.action == ProgramAction::kTransfer) {
      // A receive is posted only after the previous one was accepted.
      if (free_slots_.empty() || (!comm_.sends && unaccepted_ > 0)) break;
      open_group();
      continue;
    }
    if (!groups_.empty()) break;
    if (step.action == ProgramAction::kConnect) {
      if (!connect(step)) break;
    } else if (step.action == ProgramAction::kRegister) {
      deregister_memory(step);
      if (memory_size() != 0) {
        execute(Unmap{{memory_.pages_address, memory_.pages_size}});
        execute(MapAgain{{memory_.pages_address, memory_.pages_size}});
      }
      register_memory(step);
    } else {
      close(step);
    }
    steps_.pop_front();
    moved = true;
  }
  moved |= comm_.sends ? post_sends() : post_receives();
  moved |= comm_.sends ? test_sends() : test_receives();
  while (!groups_.empty() && groups_.front().not_done == 0) {
    free_slots_.push_back(groups_.front().slot);
    groups_.pop_front();
  }
  return moved;
}

bool CommEnd::connect(const ProgramStep& step) {
  if (attempt_ == nullptr) {
    attempt_ = comm_.sends ? std::make_unique<Attempt>(comm_.handle, 0)
                           : std::make_unique<Attempt>(std::span<const std::byte>{}, 0);
  }
  const PointerAnswer answer =
      comm_.sends ? attempt_->connect(program_.context, program_.device, true) : attempt_->accept(comm_.listener, true);
  require(step, comm_.sends ? "connect" : "accept", answer);
  if (answer.value == 0) return false;
  value_ = answer.value;
  attempt_.reset();
  if (!comm_.sends) require(step, "closeListen", calls::close(CommKind::kListen, comm_.listener));
  memory_ = map_guarded(memory_size(), false);
  register_memory(step);
  return true;
}

void CommEnd::register_memory(const ProgramStep& step) {
  if (memory_size() == 0) return;
  const PointerAnswer answer = calls::reg_mr(value_, memory_.address, memory_size(), kPreset);
  require(step, fmt::format("regMr of {}", counted(memory_size(), "byte")), answer);
  mhandle_ = answer.value;
}

void CommEnd::deregister_memory(const ProgramStep& step) {
  if (memory_size() != 0) require(step, "deregMr", calls::dereg_mr(value_, mhandle_));
}

void CommEnd::close(const ProgramStep& step) {
  deregister_memory(step);
  const CommKind kind = comm_.sends ? CommKind::kSend : CommKind::kRecv;
  require(step, comm_.sends ? "closeSend" : "closeRecv", calls::close(kind, value_));
  unmap_guarded(memory_);
}

void CommEnd::open_group() {
  const ProgramStep& step = *steps_.front();
  Group& group = groups_.emplace_back();
  group.step = &step;
  group.repetition = repetition_;
  group.slot = free_slots_.back();
  free_slots_.pop_back();
  std::byte* next = static_cast<std::byte*>(pointer(memory_.address)) + group.slot * comm_.group_bytes;
  for (const ProgramMessage& plan : step.messages) {
    group.messages.push_back({&plan, next, 0, false, false});
    if (comm_.sends) {
      fill_pattern(next, plan.bytes, mix(plan.contents, repetition_));
    } else {
      std::memset(next + plan.bytes, kCanary, program_stride(plan) - plan.bytes);
      // Bytes that the plugin does not write must not look correct: an earlier message may have left them.
      std::memset(next, kOverwritten, std::min<std::size_t>(plan.bytes, kOverwrittenBytes));
    }
    next += program_stride(plan);
  }
  group.unaccepted = group.not_done = comm_.sends ? step.messages.size() : 1;
  unaccepted_ += group.unaccepted;
  if (++repetition_ < step.repeat) return;
  repetition_ = 0;
  steps_.pop_front();
}

bool CommEnd::accept(Group& group, Message& message, const PointerAnswer& answer, const char* function) {
  if (answer.code != 0 || !answer.damage.empty())
    require(*group.step, fmt::format("{} of {}", function, name(group, message)), answer);
  if (answer.value == 0) {
    ++answer_.deferrals;
    return false;
  }
  message.request = stale_[group.slot] = answer.value;
  message.accepted = true;
  --group.unaccepted;
  --unaccepted_;
  return true;
}

bool CommEnd::post_sends() {
  if (unaccepted_ == 0) return false;
  bool moved = false;
  // Tags whose next message the plugin has not accepted.
  std::int32_t blocked[64];
  std::size_t count = 0;
  for (Group& group : groups_) {
    if (group.unaccepted == 0) continue;
    for (Message& message : group.messages) {
      if (message.accepted) continue;
      const ProgramMessage& plan = *message.plan;
      if (count == std::size(blocked) || (comm_.in_order && count > 0)) return moved;
      if (std::find(blocked, blocked + count, plan.tag) != blocked + count) continue;
      const PointerAnswer answer =
          calls::isend(value_, {number(message.buffer), plan.bytes, plan.tag, mhandle_, 0}, stale_[group.slot]);
      if (accept(group, message, answer, "isend"))
        moved = true;
      else
        blocked[count++] = plan.tag;
    }
  }
  return moved;
}

bool CommEnd::post_receives() {
  if (unaccepted_ == 0) return false;
  Group& group = groups_.back();
  std::vector<Piece> pieces;
  for (const Message& message : group.messages)
    pieces.push_back({number(message.buffer), message.plan->room, message.plan->tag, mhandle_, 0});
  return accept(group, group.messages.front(), calls::irecv(value_, pieces, stale_[group.slot]), "irecv");
}

bool CommEnd::test_sends() {
  bool moved = false;
  std::int32_t tested[64];
  std::size_t count = 0;
  for (Group& group : groups_) {
    for (Message& message : group.messages) {
      if (!message.accepted || message.done) continue;
      if (comm_.oldest_only || comm_.in_order) {
        if (count == std::size(tested) || (comm_.in_order && count > 0)) return moved;
        if (std::find(tested, tested + count, message.plan->tag) != tested + count) continue;
        tested[count++] = message.plan->tag;
      }
      moved |= test(group, message);
    }
  }
  return moved;
}

bool CommEnd::test_receives() {
  bool moved = false;
  for (Group& group : groups_) {
    if (group.unaccepted != 0) break;
    if (group.not_done != 0) moved |= test(group, group.messages.front());
    if (comm_.oldest_only || comm_.in_order) break;
  }
  return moved;
}

bool CommEnd::test(Group& group, Message& message) {
  ++answer_.tests;
  const TestAnswer answer = calls::test(message.request, 0x5a5a5a5a, comm_.sends ? -1 : 0);
  if (answer.code == 0 && answer.damage.empty() && answer.done == 0) return false;
  const std::string what = fmt::format("test of {}", name(group, message));
  require(*group.step, what, answer);
  if (answer.done != 1) throw Deviates{group.step->number, fmt::format("{} stored done = {}", what, answer.done)};
  if (comm_.sends) {
    check_send(group, message, answer);
    std::memset(message.buffer, kOverwritten, std::min<std::size_t>(message.plan->bytes, kOverwrittenBytes));
  } else {
    check_receive(group, answer);
    answer_.messages += group.messages.size();
    for (const Message& message : group.messages) answer_.bytes += message.plan->bytes;
  }
  message.done = true;
  --group.not_done;
  return true;
}

void CommEnd::check_send(const Group& group, const Message& message, const TestAnswer& answer) const {
  // A plugin need not write the size of a send.
  if (answer.sizes[0] == -1 || answer.sizes[0] == static_cast<std::int32_t>(message.plan->bytes)) return;
  throw Deviates{group.step->number,
                 fmt::format("{}: the sender's sizes[0] = {}", name(group, message), answer.sizes[0])};
}

void CommEnd::check_receive(const Group& group, const TestAnswer& answer) const {
  for (std::size_t i = 0; i < kSizes; ++i) {
    const bool filled = i < group.messages.size();
    const std::int32_t right = filled ? static_cast<std::int32_t>(group.messages[i].plan->bytes) : 0;
    if (answer.sizes[i] == right) continue;
    throw Deviates{group.step->number,
                   filled ? fmt::format("{}: sizes[{}] = {}", name(group, group.messages[i]), i, answer.sizes[i])
                          : fmt::format("sizes[{}] = {}, but the group has {}", i, answer.sizes[i],
                                        counted(group.messages.size(), "buffer"))};
  }
  for (const Message& message : group.messages) {
    const std::string wrong = difference(group, message);
    if (!wrong.empty()) throw Deviates{group.step->number, fmt::format("{}: {}", name(group, message), wrong)};
  }
}

std::string CommEnd::difference(const Group& group, const Message& message) const {
  const ProgramMessage& plan = *message.plan;
  const Difference inside = compare_pattern(message.buffer, plan.bytes, mix(plan.contents, group.repetition));
  if (inside.bytes != 0) {
    return fmt::format("byte {} is 0x{:02x}, sent 0x{:02x}; {} of {} differ", inside.offset, inside.got,
                       inside.expected, inside.bytes, counted(plan.bytes, "byte"));
  }
  const Difference after = compare_byte(message.buffer + plan.bytes, program_stride(plan) - plan.bytes, kCanary);
  if (after.bytes == 0) return "";
  return fmt::format("byte {} of the receive buffer was written", plan.bytes + after.offset);
}

std::string CommEnd::name(const Group& group, const Message& message) const {
  const ProgramMessage& plan = *message.plan;
  std::string text = fmt::format("{} with tag {}", counted(plan.bytes, "byte"), plan.tag);
  if (group.messages.size() > 1)
    text += fmt::format(", message {} of {}", &message - group.messages.data() + 1, group.messages.size());
  if (group.step->repeat > 1) text += fmt::format(" (repetition {} of {})", group.repetition + 1, group.step->repeat);
  return text;
}

Deviates CommEnd::oldest() const {
  for (const Group& group : groups_) {
    for (const Message& message : group.messages) {
      if (message.done) continue;
      const char* const state = !message.accepted && (comm_.sends || group.unaccepted > 0) ? "accepted" : "completed";
      return {group.step->number,
              fmt::format("the {} of {} was never {}", comm_.sends ? "send" : "receive", name(group, message), state)};
    }
  }
  return {steps_.front()->number, fmt::format("{} never completed", comm_.sends ? "connect" : "accept")};
}

namespace {

void pause(std::uint32_t us) {
  const timespec length{us / 1'000'000, static_cast<long>(us % 1'000'000) * 1000};
  nanosleep(&length, nullptr);
}

void run(const Program& program, ProgramAnswer& answer) {
  std::deque<CommEnd> ends;
  for (const ProgramComm& comm : program.comms) ends.emplace_back(program, comm, answer);
  const auto accepted = [](const CommEnd& end) { return end.all_accepted(); };
  const auto idle = [](const CommEnd& end) { return end.idle(); };
  StallTimer stall(program.timeout_ns);
  auto next = program.steps.begin();
  try {
    for (;;) {
      for (; next != program.steps.end(); ++next)
        if (next->action != ProgramAction::kPause)
          ends.at(next->comm).issue(*next);
        else if (std::all_of(ends.begin(), ends.end(), accepted))
          pause(next->pause_us);
        else
          break;
      bool moved = false;
      for (CommEnd& end : ends) moved |= end.turn();
      if (next == program.steps.end() && std::all_of(ends.begin(), ends.end(), idle)) return;
      if (moved) {
        stall.restart();
      } else if (stall.expired()) {
        answer.stalled = true;
        throw std::find_if_not(ends.begin(), ends.end(), idle)->oldest();
      }
    }
  } catch (const Deviates& deviates) {
    answer.broken = deviates.what;
    answer.step = deviates.step;
  }
}

}  // namespace

ProgramAnswer execute(const Program& program) {
  ProgramAnswer answer;
  answer.start_ns = now_ns();
  run(program, answer);
  answer.end_ns = now_ns();
  return answer;
}

}  // namespace plugfest::rank
