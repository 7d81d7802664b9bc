#include "harness/control/rank_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor_passing.h"
#include "fabric/system/process.h"
#include "fabric/system/wait.h"
#include "harness/control/call.h"
#include "harness/control/process/plugin_processes.h"

namespace plugfest::control {

std::shared_ptr<RankProcess> RankProcess::start(Launcher& launcher, Collector& collector, const std::string& name,
                                                const Subject& subject, const Environment& environment,
                                                const Limits& limits, CallObserver* observer, HangPlaces& places) {
  auto [control, control_of_rank] = make_socket_pair();
  auto [main, main_of_rank] = make_socket_pair();
  Pipe log = make_pipe(), output = make_pipe();

  LaunchRequest request;
  request.rank = name;
  request.argv = {rank_program()};
  request.environment = subject.environment;
  request.environment.insert(request.environment.end(), environment.begin(), environment.end());
  const std::string mark = fmt::format("{}-{}", name, now_ns());
  request.environment.emplace_back(kRankVariable, mark);
  request.output_fd = output.write_end.get();
  request.descriptors = {{control_of_rank.get(), wire::kControlFd},
                         {main_of_rank.get(), wire::kMainFd},
                         {log.write_end.get(), wire::kLogFd}};

  RpcChannels rpc(wire::Channel(std::move(control)), wire::Channel(std::move(main)),
                  static_cast<std::int64_t>(limits.call_seconds * 1e9), limits.stop_fd);
  auto capture = std::make_shared<Capture>(std::move(output.read_end), std::move(log.read_end), limits.output_bytes);
  std::shared_ptr<RankProcess> process(
      new RankProcess(name, subject, std::move(rpc), capture, observer, limits, places));
  try {
    process->child_ = launcher.start(request);
  } catch (const std::exception& error) {
    throw HarnessError(fmt::format("rank {} cannot be started: {}", name, error.what()));
  }
  process->mark_ = mark;
  collector.add(capture);
  process->rpc_.set_hang_check([&rank = *process](const PendingCall& call) { return rank.hangs_at_known_place(call); });
  return process;
}

RankProcess::RankProcess(std::string name, const Subject& subject, RpcChannels rpc, std::shared_ptr<Capture> capture,
                         CallObserver* observer, const Limits& limits, HangPlaces& places)
    : name_(std::move(name)),
      subject_(subject),
      rpc_(std::move(rpc)),
      capture_(std::move(capture)),
      records_(name_, observer),
      blocked_(places, static_cast<Nanoseconds>(limits.blocked_seconds * 1e9), subject.plugin) {}

void RankProcess::use_clock(const std::shared_ptr<LoadClock>& clock) {
  if (pid() > 0) clock->watch(pid());
  if (auto meter = child_->waited()) clock->watch(std::move(meter));
  rpc_.set_clock(clock);
}

void RankProcess::note_end(std::string why) {
  end_ = std::move(why);
  rpc_.drop_calls();
}

void RankProcess::throw_if_reaped() const {
  if (reaped()) throw Crashed(name_, end_, "", 0, 0, {});
}

std::shared_ptr<PendingCall> RankProcess::send_encoded(std::string thread, wire::Operation operation,
                                                       std::span<const std::byte> body, std::string text) {
  throw_if_reaped();
  wire::require_sendable(body);
  if (!text.empty()) records_.before_call(text);
  auto call = std::make_shared<PendingCall>();
  call->rank = shared_from_this();
  call->thread = std::move(thread);
  call->text = std::move(text);
  reporting([&] { rpc_.send(call, operation, body); });
  return call;
}

const std::vector<std::byte>& RankProcess::wait(PendingCall& call) {
  if (!call.answered) throw_if_reaped();
  reporting([&] { rpc_.wait(call); });
  if (call.kind == wire::Answer::kDone) return call.body;
  mark_unfit();
  if (call.kind == wire::Answer::kRefused) {
    const auto refusal = reporting([&] { return wire::decode<wire::Refusal>(call.body); });
    throw Refused(name_, refusal.text, refusal.missing);
  }
  throw HarnessError(
      fmt::format("rank {}: {}", name_, reporting([&] { return wire::decode<wire::Text>(call.body).text; })));
}

void RankProcess::poll(PendingCall& call) {
  if (call.answered || reaped()) return;
  reporting([&] { rpc_.receive(call); });
}

void RankProcess::check_alive() {
  throw_if_reaped();
  reporting([&] { rpc_.check_control(); });
  require_few_processes();
}

void RankProcess::require_few_processes() {
  // In a namespace of its own, plugfest sees few processes. Listing them is faster than finding those of the rank.
  if (pid() <= 0 || all_processes().size() <= kMaxProcesses) return;
  const std::vector<pid_t> processes = processes_of_plugin(pid(), mark_);
  if (processes.size() <= kMaxProcesses) return;
  ::kill(pid(), SIGKILL);
  end_processes_of_plugin(pid(), mark_);
  report_end(fmt::format("the plugin has started {} processes that have not ended, and a rank may have {}",
                         processes.size(), kMaxProcesses));
}

void RankProcess::record(const PendingCall& call, const wire::CallAnswer& answer, std::string result) {
  if (answer.start_ns == 0) return;  // the plugin has no such function
  if (answer.code != kSuccess) mark_unfit();
  if (!answer.damage.empty()) {
    mark_unfit();
    result += "; " + answer.damage;
  }
  records_.add({call.thread, call.text, std::move(result), answer.start_ns, answer.end_ns, 1});
}

void RankProcess::report_crash(const wire::Crash& crash) {
  const std::string thread(crash.thread.data(), strnlen(crash.thread.data(), crash.thread.size()));
  const Failure failure = describe_crash({name_, pid()}, crash, rpc_.running(thread), ledger);
  if (!failure.call.empty()) records_.add({failure.thread, failure.call, failure.result, now_ns(), now_ns(), 1});
  child_->end();
  note_end(failure.what);
  throw Crashed(name_, failure.what, failure.call, failure.signal, failure.address, failure.stack);
}

void RankProcess::report_exit() {
  // The channels close shortly before the process can be reaped.
  const bool runs = !wait_until([&] { return pid() <= 0 || child_->has_ended(); }, std::chrono::seconds(1));
  try {
    rpc_.check_control();  // the reason may arrive after the end of another channel
  } catch (const CrashReceived& report) {
    report_crash(report.crash);
  } catch (const ChannelClosed&) {
  } catch (const wire::WireError&) {
  }
  report_end(runs ? describe_closed_channel(pid(), rpc_.failed_start()) : "");
}

void RankProcess::report_end(const std::string& reason) {
  const int status = child_->end().value_or(0);
  const Failure failure =
      describe_exit({name_, pid()}, status, rpc_.any_plugin_call(), reason.empty() ? child_->end_reason() : reason);
  if (!failure.call.empty()) records_.add({failure.thread, failure.call, failure.result, now_ns(), now_ns(), 1});
  note_end(failure.what);
  // A service manager sends the signal that ends the run to all processes.
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if ((signal == SIGTERM || signal == SIGINT || signal == SIGHUP) && rpc_.is_stopped()) throw Interrupted();
  throw Crashed(name_, failure.what, failure.call, failure.signal, failure.address, failure.stack);
}

void RankProcess::report_hang(const PendingCall& call) {
  if (child_->has_ended()) report_exit();  // a process that the plugin has forked keeps the channels open
  const std::string function = child_->frozen() ? "" : rpc_.function_on(call.thread);
  const bool cut_short = blocked_.is(call.id);
  std::vector<std::string> stack;
  if (cut_short)
    stack = blocked_.stack();
  else if (!child_->frozen() && pid() > 0)
    stack = read_stack(pid(), thread_named(pid(), call.thread), StackPart::kWhole);
  Failure failure = describe_hang({name_, pid()}, call, function, child_->frozen(),
                                  cut_short ? blocked_.waited() : timeout_ns(), std::move(stack));
  if (cut_short) {
    failure.what += fmt::format(": cut short, since another call hung at this place for {:g} s",
                                static_cast<double>(timeout_ns()) / 1e9);
  } else {
    blocked_.add_hang(failure.stack);
  }
  records_.add({failure.thread, failure.call, failure.result, call.sent_ns, now_ns(), 1});
  child_->end();
  note_end(failure.what);
  if (call.text.empty() && function.empty()) throw HarnessError(failure.what);
  throw Hung(name_, failure.what, failure.call, failure.stack, cut_short);
}

bool RankProcess::hangs_at_known_place(const PendingCall& call) {
  constexpr std::int64_t kIntervalOfCounts = 100'000'000;
  const std::int64_t now = now_ns();
  if (now - counted_ns_ >= kIntervalOfCounts) {
    counted_ns_ = now;
    require_few_processes();
  }
  if (blocked_.limit() == 0 || pid() <= 0 || child_->frozen()) return false;
  return blocked_.hangs(pid(), call.thread, call.id, *rpc_.clock());
}

void RankProcess::report_invalid_bytes(const std::string& what) {
  child_->end();
  note_end(fmt::format("rank {}: {}; the plugin may have overwritten the harness's memory", name_, what));
  throw HarnessError(end_);
}

void RankProcess::freeze() {
  check_alive();
  if (before_freeze_) before_freeze_();
  if (!child_->freeze()) report_exit();
}

void RankProcess::thaw() {
  check_alive();
  child_->thaw();
  // The time in which the process was stopped does not count.
  rpc_.restart_deadlines();
}

void RankProcess::kill() {
  if (reaped()) return;
  child_->end();
  killed_ = true;
  note_end(fmt::format("rank {} was killed by the rule", name_));
}

void RankProcess::exit(const wire::Exit& request) {
  const auto call = send({}, request, "exit(0)");
  reporting([&] {
    try {
      rpc_.wait(*call);
    } catch (const ChannelClosed&) {
      // The request has no answer.
    }
  });
  const int status = child_->end().value_or(0);
  const Failure failure = describe_exit({name_, pid()}, status, call.get());
  note_end(failure.what);
  killed_ = status == 0;
  if (status != 0) throw Crashed(name_, failure.what, failure.call, failure.signal, failure.address, failure.stack);
}

bool RankProcess::reusable() const {
  if (reaped() || child_->frozen() || unfit_) return false;
  // A call may have opened an object whose outcome the rule did not take.
  return rpc_.untaken() == 0 && ledger.requests.empty() && ledger.attempts.empty();
}

}  // namespace plugfest::control
