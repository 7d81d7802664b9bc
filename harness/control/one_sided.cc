#include "harness/control/one_sided.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "harness/control/joining.h"
#include "harness/control/rank_process.h"

namespace plugfest::control {

namespace {

const plugin::SlotLayout* slot_of(const Rank& rank, std::string_view function) {
  return plugin::api_layout(rank.library().interface, rank.api()).find(function);
}

std::vector<std::byte> bytes_of(const std::vector<int>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(int));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

CallArguments context_arguments(const Rank& rank, const OneSidedOptions& options) {
  CallArguments arguments = options.context;
  arguments.insert({{"nSignals", 64}, {"nContexts", options.contexts}});
  if (rank.library().interface == plugin::InterfaceKind::kRma && rank.api() >= 14)
    arguments.emplace("config", bytes_of({options.contexts, options.traffic_class, options.rank_stride}));
  else
    arguments.emplace("config", bytes_of({64, 0, options.contexts, 0, options.traffic_class}));
  return arguments;
}

}  // namespace

CallOutcome OneSidedRank::call(std::string_view function, CallArguments arguments) {
  CallOutcome outcome = try_call(function, std::move(arguments));
  require_success(outcome);
  return outcome;
}

Started<CallOutcome> OneSidedRank::start_call(std::string_view function, CallArguments arguments) {
  arguments.emplace("collComm", comm_);
  arguments.emplace("ginCtx", context_);
  arguments.emplace("rmaCtx", context_);
  const plugin::SlotLayout* const slot = slot_of(rank_, function);
  std::erase_if(arguments, [&](const auto& argument) {
    return std::none_of(slot->parameters.begin(), slot->parameters.end(),
                        [&](const plugin::Parameter& parameter) { return parameter.name == argument.first; });
  });
  return rank_.start_call(function, arguments);
}

OneSidedRank::OneSidedRank(Rank rank, std::uint64_t comm) : rank_(std::move(rank)), comm_(comm) {
  for (const char* const function : {"ginProgress", "rmaProgress"})
    if (slot_of(rank_, function) != nullptr && rank_.has_function(function)) progress_ = function;
}

CallArguments put_arguments(const WindowPart& source, const WindowPart& target, std::size_t size, std::size_t from,
                            std::size_t to) {
  return {{"srcOff", source.offset}, {"srcMhandle", source.window.mhandles[from]}, {"size", size},
          {"dstOff", target.offset}, {"dstMhandle", target.window.mhandles[from]}, {"rank", to}};
}

CallArguments get_arguments(const WindowPart& source, const WindowPart& target, std::size_t size, std::size_t from,
                            std::size_t to) {
  return {{"remoteOff", source.offset},
          {"remoteMhandle", source.window.mhandles[from]},
          {"size", size},
          {"localOff", target.offset},
          {"rank", to},
          {"localMhandle", target.window.mhandles[from]}};
}

CallArguments signal_arguments(const WindowPart& signal, std::size_t from, std::size_t to, abi::SignalOp op,
                               std::uint64_t value) {
  return {{"signalOff", signal.offset},
          {"signalMhandle", signal.window.mhandles[from]},
          {"signalValue", value},
          {"signalOp", std::uint32_t{op}},
          {"rank", to},
          {"isStrongSignal", 1}};
}

CallArguments reg_arguments(const Slice& slice, std::uint64_t flags) {
  return {
      {"data", slice.address}, {"size", slice.size}, {"type", static_cast<int>(abi::kPointerHost)}, {"mrFlags", flags}};
}

CallArguments with(CallArguments arguments, const CallArguments& more) {
  for (const auto& [name, value] : more) arguments.insert_or_assign(name, value);
  return arguments;
}

Operation::Operation(OneSidedRank& rank, std::string_view function, CallArguments arguments)
    : rank_(&rank), function_(function), arguments_(std::move(arguments)) {}

void Operation::post() {
  const CallOutcome outcome = rank_->call(function_, arguments_);
  if (outcome.untouched("*request"))
    throw Deviation(rank_->name(), fmt::format("{} succeeded and did not write *request", outcome.call));
  request_ = outcome.pointer("*request");
  posted_ = true;
  // Only a flush may be done at once.
  done_ = request_ == 0 && function_ == "iflush";
  if (request_ == 0 && !done_)
    throw Deviation(
        rank_->name(),
        fmt::format("{} stored the request NULL, expected a request: NCCL does not repeat the call", outcome.call));
}

CallOutcome Operation::try_test() {
  CallOutcome outcome = rank_->try_call("test", {{"request", request_}, {"*done", 0}});
  done_ = outcome.ok() && outcome.integer("*done") != 0;
  return outcome;
}

bool Operation::turn() {
  if (!posted_) {
    post();
    return done_;
  }
  require_success(try_test());
  return done_;
}

std::string Operation::describe() const {
  return fmt::format("rank {}: {} (request 0x{:x})", rank_->name(), function_, request_);
}

StallLimit Operation::stall_limit() const { return rank_->rank().rank_process()->stall_limit(); }

Started<OneSidedLoopOutcome> start_loop(OneSidedRank& rank, const OneSidedLoop& loop) {
  const auto operation = [&](std::string_view function, CallArguments arguments) {
    wire::OneSided::Operation described{std::string(function), {}};
    const plugin::SlotLayout* const slot = slot_of(rank.rank(), function);
    if (slot == nullptr) return described;
    arguments.insert({{"collComm", rank.comm()}, {"ginCtx", rank.context()}, {"rmaCtx", rank.context()}});
    for (const plugin::Parameter& parameter : slot->parameters.first(slot->parameters.size() - 1)) {
      const auto given = arguments.find(parameter.name);
      described.words.push_back(given == arguments.end() ? 0 : given->second.number);
    }
    return described;
  };
  const std::shared_ptr<RankProcess>& process = rank.rank().rank_process();
  const wire::OneSided request{
      .repeated = operation(loop.function, loop.arguments),
      .last = loop.last.empty() ? wire::OneSided::Operation{} : operation("iputSignal", loop.last),
      .progress = rank.progress(),
      .context = rank.context(),
      .coll_comm = rank.comm(),
      .count = loop.count,
      .window = loop.window,
      .signal_address = loop.signal.address,
      .starts = loop.starts,
      .timeout_ns = process->timeout_ns()};
  return start<OneSidedLoopOutcome>(
      process, rank.rank().thread(), request, fmt::format("{} x {}", loop.count, loop.function),
      [](OneSidedLoopOutcome& outcome, const wire::OneSidedAnswer& answer, RankProcess& its) {
        outcome.median_ns = answer.median_ns;
        return finish_measurement(outcome, answer, its);
      });
}

namespace {

void progress(const std::vector<OneSidedRank*>& ranks) {
  for (OneSidedRank* const rank : ranks)
    if (!rank->try_progress())
      throw Deviation(rank->name(), fmt::format("rank {}: the progress function failed", rank->name()));
}

}  // namespace

void progress_until(const std::vector<OneSidedRank*>& ranks, const std::function<bool()>& ready) {
  for (std::size_t rounds = 0; !ready(); ++rounds) {
    progress(ranks);
    // Yields the processor to the ranks.
    if (rounds > 100) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

OneSidedGroup::OneSidedGroup(const std::vector<Rank>& ranks, const OneSidedOptions& options) {
  CallArguments more = options.connect;
  // connect of GIN v12 is the only function with this parameter.
  if (ranks.front().library().interface == plugin::InterfaceKind::kGin) more.emplace("nConnections", options.contexts);
  Joining joining(ranks, std::move(more));
  joining.start_all(options.lateness);
  for (const Joined& joined : joining.get_all()) ranks_.emplace_back(joined.rank, joined.comm);
  if (abi::has_gets_and_contexts(ranks.front().api())) use_contexts(open_contexts(options));
}

std::vector<CallOutcome> OneSidedGroup::call_all(std::string_view function,
                                                 const std::vector<CallArguments>& arguments) {
  std::vector<Started<CallOutcome>> started;
  for (std::size_t i = 0; i < size(); ++i) started.push_back(ranks_[i].start_call(function, arguments[i]));
  std::vector<CallOutcome> outcomes;
  for (auto& call : started) outcomes.push_back(call.get());
  for (const CallOutcome& outcome : outcomes) require_success(outcome);
  return outcomes;
}

std::vector<std::uint64_t> OneSidedGroup::open_contexts(const OneSidedOptions& options) {
  const CallArguments arguments = context_arguments(ranks_.front().rank(), options);
  std::vector<std::uint64_t> contexts;
  for (const CallOutcome& outcome : call_all("createContext", std::vector(size(), arguments))) {
    contexts.push_back(outcome.pointer(outcome.has("*rmaCtx") ? "*rmaCtx" : "*ginCtx"));
    if (contexts.back() == 0)
      throw Deviation(outcome.rank, fmt::format("{} succeeded and stored no context", outcome.call));
  }
  return contexts;
}

void OneSidedGroup::use_contexts(const std::vector<std::uint64_t>& contexts) {
  for (std::size_t i = 0; i < size(); ++i) ranks_[i].use_context(contexts[i]);
}

void OneSidedGroup::close_contexts(const std::vector<std::uint64_t>& contexts) {
  for (std::size_t i = 0; i < size(); ++i)
    ranks_[i].call("destroyContext", {{"ginCtx", contexts[i]}, {"rmaCtx", contexts[i]}});
}

Window OneSidedGroup::window(std::size_t size, std::uint64_t flags) {
  Window window;
  std::vector<Slice> slices;
  for (OneSidedRank& rank : ranks_) {
    window.memory.push_back(rank.rank().allocate(size));
    slices.push_back(window.memory.back());
  }
  window.mhandles = reg(slices, flags);
  return window;
}

std::vector<std::uint64_t> OneSidedGroup::reg(const std::vector<Slice>& slices, std::uint64_t flags,
                                              std::string_view output) {
  std::vector<CallArguments> arguments;
  for (const Slice& slice : slices) arguments.push_back(reg_arguments(slice, flags));
  return register_all("regMrSym", arguments, output);
}

std::vector<std::uint64_t> OneSidedGroup::register_all(std::string_view function,
                                                       const std::vector<CallArguments>& arguments,
                                                       std::string_view output) {
  std::vector<std::uint64_t> handles;
  for (const CallOutcome& outcome : call_all(function, arguments)) {
    handles.push_back(outcome.pointer(output));
    if (outcome.untouched(output) || handles.back() == 0)
      throw Deviation(outcome.rank, fmt::format("{} succeeded and stored no handle", outcome.call));
  }
  return handles;
}

void OneSidedGroup::dereg(const std::vector<std::uint64_t>& mhandles) {
  for (std::size_t i = 0; i < size(); ++i) ranks_[i].call("deregMrSym", {{"mhandle", mhandles[i]}});
}

void OneSidedGroup::close() {
  for (OneSidedRank& rank : ranks_) {
    if (rank.context() != 0) rank.call("destroyContext");
    rank.call("closeColl");
  }
}

std::vector<OneSidedRank*> OneSidedGroup::members(std::optional<std::size_t> without) {
  std::vector<OneSidedRank*> members;
  for (std::size_t i = 0; i < size(); ++i)
    if (i != without) members.push_back(&ranks_[i]);
  return members;
}

void OneSidedGroup::finish(std::vector<Operation>& operations, std::optional<std::size_t> without_progress) {
  std::vector<Step*> steps;
  for (Operation& operation : operations) steps.push_back(&operation);
  control::finish(steps, [ranks = members(without_progress)] { progress(ranks); });
}

void OneSidedGroup::deliver(std::vector<Operation>& operations, std::uint64_t contexts) {
  finish(operations);
  const Window signals = window(sizeof(std::uint64_t), abi::kForceStrictOrder);
  std::vector<Operation> notices;
  for (std::size_t from = 0; from < size(); ++from)
    for (std::size_t to = 0; to < size(); ++to)
      for (std::uint64_t number = 0; number < contexts; ++number)
        notices.emplace_back(ranks_[from], "iputSignal",
                             with(signal_arguments({signals}, from, to, abi::kSignalInc, 1), {{"context", number}}));
  finish(notices);
  for (std::size_t to = 0; to < size(); ++to) require_signal(to, signals.memory[to], size() * contexts);
  dereg(signals.mhandles);
}

void OneSidedGroup::require_signal(std::size_t number, const Slice& word, std::uint64_t value, const Slice& data,
                                   std::uint64_t seed) {
  Rank& rank = ranks_[number].rank();
  auto awaiting = start_awaiting(rank, word, value, data, seed);
  const WatchOutcome arrived = get(awaiting);
  if (!arrived.broken.empty()) throw Deviation(rank.name(), fmt::format("rank {}: {}", rank.name(), arrived.broken));
}

void OneSidedGroup::require_puts(std::size_t size, std::uint64_t seed, std::string_view situation) {
  constexpr std::size_t kGuard = 64;
  const std::size_t slot = size + 2 * kGuard;
  const Window source = window(size), target = window(slot * this->size());
  for (std::size_t i = 0; i < this->size(); ++i) {
    ranks_[i].rank().fill(source.memory[i], seed + i);
    ranks_[i].rank().set(target.memory[i], 0x5a);
  }
  std::vector<Operation> puts;
  for (std::size_t from = 0; from < this->size(); ++from)
    for (std::size_t to = 0; to < this->size(); ++to)
      puts.emplace_back(ranks_[from], "iput", put_arguments({source}, {target, from * slot + kGuard}, size, from, to));
  deliver(puts);
  for (std::size_t to = 0; to < this->size(); ++to) {
    Rank& rank = ranks_[to].rank();
    for (std::size_t from = 0; from < this->size(); ++from) {
      const std::size_t begin = from * slot;
      const auto require = [&](const Check& check, const char* what) {
        if (!check)
          throw Deviation(rank.name(),
                          fmt::format("rank {}: {} a put of {} bytes from rank {}{}{}: {}", rank.name(), what, size,
                                      ranks_[from].name(), situation.empty() ? "" : " ", situation, check.difference));
      };
      require(rank.check(target.memory[to].sub(begin + kGuard, size), seed + from), "the data of");
      require(rank.check_set(target.memory[to].sub(begin, kGuard), 0x5a), "64 bytes before");
      require(rank.check_set(target.memory[to].sub(begin + kGuard + size, kGuard), 0x5a), "64 bytes behind");
    }
  }
  for (const Window* one : {&source, &target}) dereg(one->mhandles);
}

}  // namespace plugfest::control
