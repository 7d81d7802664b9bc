// Repeats a script of calls of any interface.
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

using SlotValues = std::vector<std::uint64_t>;

abi::Result empty_function() { return abi::Result::kSuccess; }

// A step of a script with memory for its arguments.
class ScriptedCall {
 public:
  ScriptedCall(const CallScript& script, const CallScript::Step& step)
      : name_(fmt::format("{}({})", step.function, step.about)),
        function_(script.empty ? reinterpret_cast<plugin::Library::AnyFunction>(&empty_function)
                               : library().function(step.function)),
        arguments_(step.arguments),
        unless_null_(step.unless_null),
        preset_(script.preset) {
    const plugin::SlotLayout* const slot = library().layout().find(step.function);
    if (slot == nullptr || function_ == nullptr || slot->parameters.size() != arguments_.size())
      throw WireError(fmt::format("a call of {} that the interface does not have", step.function));
  }

  // "startEvent(ProxyStep)"
  const std::string& name() const { return name_; }
  bool is_made(const SlotValues& slots) const { return !unless_null_ || slots.at(*unless_null_) != 0; }

  abi::Result operator()(SlotValues& slots) {
    Words words{};
    for (std::size_t i = 0; i < arguments_.size(); ++i) words[i] = word_of(arguments_[i], slots);
    return call_words(function_, words, arguments_.size());
  }
  // Call it after each call. Returns whether the call wrote all its outputs.
  bool take_outputs(SlotValues& slots) const {
    bool written = true;
    for (const CallScript::Argument& argument : arguments_) {
      if (argument.source != CallScript::Source::kOutput || slots[argument.number] != preset_) continue;
      slots[argument.number] = 0;
      written = false;
    }
    return written;
  }

 private:
  std::uint64_t word_of(CallScript::Argument& argument, SlotValues& slots) const {
    switch (argument.source) {
      case CallScript::Source::kNumber:
        return argument.number;
      case CallScript::Source::kSlot:
        return slots.at(argument.number);
      case CallScript::Source::kOutput:
        slots.at(argument.number) = preset_;
        return number(&slots[argument.number]);
      case CallScript::Source::kBytes:
        for (const CallScript::Pointer& pointer : argument.pointers)
          std::memcpy(&argument.bytes.at(pointer.offset), &slots.at(pointer.slot), sizeof(std::uint64_t));
        return argument.bytes.empty() ? 0 : number(argument.bytes.data());
    }
    return 0;
  }

  std::string name_;
  plugin::Library::AnyFunction function_;
  std::vector<CallScript::Argument> arguments_;
  std::optional<std::uint32_t> unless_null_;
  std::uint64_t preset_;
};

}  // namespace

CallScriptAnswer execute(const CallScript& request) {
  CallScriptAnswer answer;
  std::vector<ScriptedCall> calls;
  for (const CallScript::Step& step : request.steps) calls.emplace_back(request, step);
  SlotValues slots = request.slots;
  std::vector<std::uint32_t> times;
  times.reserve(request.count);
  StallTimer progress(request.timeout_ns);
  std::atomic<const char*>& mark = this_thread().call;
  answer.start_ns = now_ns();
  for (std::uint64_t i = 0; i < request.count; ++i) {
    const std::int64_t start = now_ns();
    for (ScriptedCall& call : calls) {
      if (!call.is_made(slots)) continue;
      mark.store(call.name().c_str(), std::memory_order_relaxed);
      const auto code = static_cast<std::int32_t>(call(slots));
      ++answer.calls;
      if (code != 0 && answer.failed.empty())
        answer.failed = fmt::format("{} returned {}", call.name(), wire::code_text(code));
      if (!call.take_outputs(slots) && answer.unwritten.empty()) answer.unwritten = call.name();
    }
    mark.store(nullptr, std::memory_order_relaxed);
    times.push_back(short_duration(now_ns() - start));
    progress.restart();
  }
  answer.end_ns = now_ns();
  answer.median_ns = median_duration(times);
  return answer;
}

}  // namespace plugfest::rank
