#include "harness/control/process/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "fabric/system/clock.h"
#include "harness/control/deviation.h"
#include "harness/control/process/stack.h"

namespace plugfest::control {

namespace {

// What is not the plugin's doing must not be waited for as long as a plugin call.
constexpr std::int64_t kControlPatience = 1'000'000'000;

/// A pair of descriptors: ours, and the other process's. Closed unless taken.
struct Pair {
  int ours = -1;
  int theirs = -1;
  ~Pair() {
    if (ours >= 0) close(ours);
    if (theirs >= 0) close(theirs);
  }
  int take_ours() { return std::exchange(ours, -1); }
};

void open_socket_pair(Pair& pair) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw HarnessError(fmt::format("cannot make a socket pair: {}", strerror(errno)));
  }
  pair.ours = fds[0];
  pair.theirs = fds[1];
}

void open_pipe(Pair& pair) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw HarnessError(fmt::format("cannot make a pipe: {}", strerror(errno)));
  pair.ours = fds[0];
  pair.theirs = fds[1];
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string seconds_text(double seconds) { return fmt::format("{:g} s", seconds); }

}  // namespace

std::shared_ptr<RankProcess> RankProcess::start(Launcher& launcher, Collector& collector, const std::string& name,
                                                const Subject& subject, const Environment& environment,
                                                const Limits& limits) {
  Pair control, main, log, output;
  open_socket_pair(control);
  open_socket_pair(main);
  open_pipe(log);
  open_pipe(output);

  LaunchRequest request;
  request.rank = name;
  request.argv = {rank_program()};
  request.environment = subject.environment;
  request.environment.insert(request.environment.end(), environment.begin(), environment.end());
  request.output_fd = output.theirs;
  request.descriptors = {{control.theirs, rank::kControlFd}, {main.theirs, rank::kMainFd}, {log.theirs, rank::kLogFd}};

  std::shared_ptr<RankProcess> process(new RankProcess(name, subject, limits, rank::Channel(control.take_ours())));
  process->threads_.try_emplace(rank::kMainThread, rank::Channel(main.take_ours()));
  process->capture_ = std::make_shared<Capture>(output.take_ours(), log.take_ours(), limits.output_bytes);
  try {
    process->pid_ = launcher.launch(request);
  } catch (const std::exception& error) {
    throw HarnessError(fmt::format("rank {} cannot be started: {}", name, error.what()));
  }
  collector.add(process->capture_);
  return process;
}

RankProcess::RankProcess(std::string name, const Subject& subject, const Limits& limits, rank::Channel control)
    : name_(std::move(name)), subject_(subject), limits_(limits), control_(std::move(control)) {}

RankProcess::~RankProcess() { end(); }

RankProcess::Thread& RankProcess::thread(const std::string& name) {
  if (const auto found = threads_.find(name); found != threads_.end()) return found->second;
  Pair pair;
  open_socket_pair(pair);
  rank::Channel channel(pair.take_ours());
  if (!control_.send(next_id_++, static_cast<std::uint32_t>(rank::Operation::kStartThread),
                     rank::encode(rank::StartThread{name}), pair.theirs)) {
    look_at_control();
    report_end();
  }
  // Its answer is taken in with whatever else comes on the control channel: the socket holds requests until then.
  return threads_.try_emplace(name, std::move(channel)).first->second;
}

std::shared_ptr<PendingCall> RankProcess::send(const std::string& thread_name, std::string_view usual,
                                               rank::Operation operation, std::span<const std::byte> body,
                                               std::string text) {
  if (!alive()) throw Crashed(name_, end_, "", 0, 0, {});
  if (observer_ != nullptr && !text.empty()) observer_->before_call(name_, text);
  auto call = std::make_shared<PendingCall>();
  call->rank = shared_from_this();
  call->thread = thread_name.empty() ? std::string(usual) : thread_name;
  call->id = next_id_++;
  call->text = std::move(text);
  Thread& thread = this->thread(call->thread);
  call->sent_ns = call->moved_ns = now_ns();
  ++not_taken_;
  thread.under_way.push_back(call);
  if (!thread.channel.send(call->id, static_cast<std::uint32_t>(operation), body)) {
    look_at_control();
    report_end();
  }
  return call;
}

const std::vector<std::byte>& RankProcess::wait(PendingCall& call) {
  if (!std::exchange(call.taken, true)) --not_taken_;
  while (!call.answered) {
    if (!alive()) throw Crashed(name_, end_, "", 0, 0, {});
    Thread& thread = this->thread(call.thread);
    // What came while another rank was waited for: an answer, or a sign that the call gets on.
    take_in(thread);
    if (call.answered) break;
    // A thread takes its calls in order: the one in front is the one that runs, and its time counts.
    PendingCall& front = *thread.under_way.front();
    if (!wait_for_input(thread, front.moved_ns + patience_ns())) report_hang(front);
  }
  if (call.kind == rank::Answer::kDone) return call.body;
  std::string text;
  try {
    text = rank::decode<rank::Text>(call.body).text;
  } catch (const rank::WireError& error) {
    bad_bytes(error.what());
  }
  spoil();
  if (call.kind == rank::Answer::kRefused) throw Deviation(name_, text);
  throw HarnessError(fmt::format("rank {}: {}", name_, text));
}

void RankProcess::look(PendingCall& call) {
  if (call.answered || !alive()) return;
  take_in(thread(call.thread));
}

bool RankProcess::wait_for_input(Thread& thread, std::int64_t deadline_ns) {
  for (;;) {
    // poll leaves out what is negative.
    pollfd fds[3] = {{thread.channel.fd(), POLLIN, 0}, {control_.fd(), POLLIN, 0}, {limits_.stop_fd, POLLIN, 0}};
    const std::int64_t left = deadline_ns - now_ns();
    if (left <= 0) return false;
    const timespec timeout{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    const int ready = ppoll(fds, 3, &timeout, nullptr);
    if (ready < 0 && errno != EINTR) throw HarnessError(fmt::format("poll: {}", strerror(errno)));
    if (ready <= 0) continue;
    if (fds[2].revents != 0) throw Interrupted();
    if (fds[1].revents != 0) look_at_control();
    if (fds[0].revents != 0) return true;
  }
}

void RankProcess::take_in(Thread& thread) {
  try {
    while (auto frame = thread.channel.poll()) take_frame(thread, std::move(*frame));
  } catch (const rank::WireError& error) {
    bad_bytes(error.what());
  }
  if (thread.channel.gone()) {
    look_at_control();
    report_end();
  }
}

void RankProcess::take_frame(Thread& thread, rank::Frame frame) {
  if (thread.under_way.empty() || frame.header.id != thread.under_way.front()->id) {
    bad_bytes("an answer to a question that was not asked");
  }
  PendingCall& call = *thread.under_way.front();
  call.moved_ns = now_ns();
  const auto kind = static_cast<rank::Answer>(frame.header.kind);
  if (kind == rank::Answer::kProgress) return;
  if (kind != rank::Answer::kDone && kind != rank::Answer::kFailed && kind != rank::Answer::kRefused) {
    bad_bytes("an answer of an unknown kind");
  }
  call.kind = kind;
  call.body = std::move(frame.body);
  call.answered = true;
  thread.under_way.pop_front();
  // The next one starts only now.
  if (!thread.under_way.empty()) thread.under_way.front()->moved_ns = call.moved_ns;
}

void RankProcess::look_at_control() {
  try {
    while (const auto frame = control_.poll()) {
      if (frame->header.kind == static_cast<std::uint32_t>(rank::Answer::kCrash)) {
        report_crash(rank::decode<rank::Crash>(frame->body));
      }
    }
  } catch (const rank::WireError& error) {
    bad_bytes(error.what());
  }
  if (control_.gone()) report_end();
}

void RankProcess::check_alive() {
  if (!alive()) throw Crashed(name_, end_, "", 0, 0, {});
  look_at_control();
}

void RankProcess::record(const PendingCall& call, const rank::CallAnswer& answer, std::string result) {
  if (answer.start_ns == 0) return;  // the plugin has no such function, and nothing was called
  if (answer.code != kSuccess) spoil();
  if (!answer.damage.empty()) {
    spoil();
    result += "; " + answer.damage;
  }
  add_record({call.thread, call.text, std::move(result), answer.start_ns, answer.end_ns, 1});
}

std::string RankProcess::call_on(std::string_view thread_name, const std::string& function) const {
  const auto thread = threads_.find(std::string(thread_name));
  if (thread == threads_.end() || thread->second.under_way.empty()) return function;
  const std::string& text = thread->second.under_way.front()->text;
  // A program makes many calls: the function that ran says more than the program's name alone.
  if (function.empty() || text.empty() || text.starts_with(function)) return text.empty() ? function : text;
  return fmt::format("{} in {}", function, text);
}

void RankProcess::report_crash(const rank::Crash& crash) {
  const std::string thread(crash.thread.data(), strnlen(crash.thread.data(), crash.thread.size()));
  const std::string function(crash.call.data(), strnlen(crash.call.data(), crash.call.size()));
  const std::string call = call_on(thread, function);
  // The thread waits in its signal handler.
  const std::vector<std::string> stack = read_stack(pid_, crash.thread_id, StackPart::kBelowSignal);
  std::string what = call.empty() ? fmt::format("rank {}: its thread {} crashed", name_, thread.empty() ? "?" : thread)
                                  : fmt::format("rank {}: {} crashed", name_, call);
  what += fmt::format(": {}", signal_name(crash.signal));
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS) {
    what += fmt::format(" at address 0x{:x}{}", crash.address, ledger.describe(crash.address));
  }
  if (!call.empty()) {
    add_record({thread, call, signal_name(crash.signal), now_ns(), now_ns(), 1});
  }
  end();
  end_ = what;
  throw Crashed(name_, what, call, crash.signal, crash.address, stack);
}

void RankProcess::report_end() {
  std::string call;
  for (const auto& [name, thread] : threads_) {
    if (!thread.under_way.empty() && call.empty()) call = thread.under_way.front()->text;
  }
  const int status = reap();
  int signal = 0;
  std::string how;
  if (WIFSIGNALED(status)) {
    signal = WTERMSIG(status);
    how = fmt::format("the process was ended by {}", signal_name(signal));
  } else {
    how = fmt::format("the process ended with exit code {}", WEXITSTATUS(status));
  }
  const std::string what =
      call.empty() ? fmt::format("rank {}: {}", name_, how) : fmt::format("rank {}: {}: {}", name_, call, how);
  if (!call.empty()) add_record({"?", call, how, now_ns(), now_ns(), 1});
  end_ = what;
  throw Crashed(name_, what, call, signal, 0, {});
}

std::string RankProcess::function_on(const std::string& thread) {
  const std::uint32_t id = next_id_++;
  if (!control_.send(id, static_cast<std::uint32_t>(rank::Operation::kWhatRuns), rank::encode(rank::Text{thread}))) {
    return "";
  }
  const std::int64_t deadline = now_ns() + kControlPatience;
  try {
    for (;;) {
      while (const auto frame = control_.poll()) {
        if (frame->header.id == id) return rank::decode<rank::Text>(frame->body).text;
      }
      const std::int64_t left_ms = (deadline - now_ns()) / 1'000'000;
      pollfd fd{control_.fd(), POLLIN, 0};
      if (left_ms <= 0 || control_.gone() || poll(&fd, 1, static_cast<int>(left_ms)) == 0) return "";
    }
  } catch (const rank::WireError&) {
    return "";
  }
}

void RankProcess::report_hang(const PendingCall& call) {
  const std::string function = frozen_ ? "" : function_on(call.thread);
  const std::string text =
      call.text.empty() && function.empty() ? "a request of the harness" : call_on(call.thread, function);
  const std::vector<std::string> stack =
      frozen_ ? std::vector<std::string>{} : read_stack(pid_, thread_named(pid_, call.thread), StackPart::kWhole);
  const std::string what = fmt::format("rank {}: {} did not return within {}{}", name_, text,
                                       seconds_text(limits_.call_seconds), frozen_ ? " (the rank is frozen)" : "");
  add_record({call.thread, text, "did not return", call.sent_ns, now_ns(), 1});
  end();
  end_ = what;
  if (call.text.empty() && function.empty()) throw HarnessError(what);
  throw Hung(name_, what, text, stack);
}

void RankProcess::bad_bytes(const std::string& what) {
  end();
  end_ = fmt::format("rank {}: {}; the plugin may have overwritten the harness's memory", name_, what);
  throw HarnessError(end_);
}

void RankProcess::freeze() {
  check_alive();
  ::kill(pid_, SIGSTOP);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  if (info.si_code != CLD_STOPPED) report_end();
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED);
  frozen_ = true;
}

void RankProcess::thaw() {
  check_alive();
  ::kill(pid_, SIGCONT);
  frozen_ = false;
  // The time it stood still is not its own.
  for (auto& [name, thread] : threads_) {
    if (!thread.under_way.empty()) thread.under_way.front()->moved_ns = now_ns();
  }
}

void RankProcess::kill() {
  if (!alive()) return;
  end();
  killed_ = true;
  end_ = fmt::format("rank {} was killed by the rule", name_);
}

void RankProcess::end() {
  if (!alive()) return;
  ::kill(pid_, SIGKILL);
  reap();
}

void RankProcess::add_record(CallRecord record) {
  if (observer_ != nullptr) observer_->on_call(name_, record);
  records.add(std::move(record));
}

int RankProcess::reap() {
  int status = 0;
  if (!dead_ && pid_ > 0) {
    // Its sockets close a moment before the process can be waited for, and its exit status stands then; a process that
    // only closed our sockets must end too.
    ::kill(pid_, SIGKILL);
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  dead_ = true;
  return status;
}

bool RankProcess::whole() const {
  if (!alive() || frozen_ || spoiled_) return false;
  // A call whose outcome nobody took may have opened something.
  return not_taken_ == 0 && ledger.requests.empty() && ledger.attempts.empty();
}

}  // namespace plugfest::control
