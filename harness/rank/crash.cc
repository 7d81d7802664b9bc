#include "harness/rank/crash.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "harness/rank/signal_guard.h"
#include "harness/rank/thread.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

int report_fd = -1;
pid_t rank_process = -1;
std::atomic<bool> reported{false};
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGPIPE, SIGSYS};

template <class T>
std::byte* put(std::byte* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

// Async-signal-safe: no allocation, no lock, no encode().
void handle(int signal, siginfo_t* info, void* context) {
  // A process that the plugin has forked ends so without harm, for example as part of a pipeline.
  if (signal == SIGPIPE && getpid() != rank_process) {
    ::signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    return;
  }
  if (!reported.exchange(true)) {
    Crash crash;
    crash.signal = signal;
    crash.code = info->si_code;
    const bool has_address = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
    crash.address = has_address ? reinterpret_cast<std::uint64_t>(info->si_addr) : 0;
    crash.thread_id = static_cast<std::int32_t>(syscall(SYS_gettid));
    if (const ThreadState* thread = this_thread_or_null(); thread != nullptr) {
      std::copy_n(thread->name.data(), std::min(thread->name.size(), crash.thread.size() - 1), crash.thread.data());
      const char* call = thread->call.load(std::memory_order_relaxed);
      if (call != nullptr) std::copy_n(call, std::min(std::strlen(call), crash.call.size() - 1), crash.call.data());
    } else {
      prctl(PR_GET_NAME, crash.thread.data());
    }
    if (signal == SIGSYS) {
      const RefusedSignal refused = refused_signal(*info, context);
      crash.refused_signal = refused.signal;
      crash.refused_target = refused.target;
    }
    std::byte bytes[sizeof(FrameHeader) + 128];
    std::byte* end = bytes + sizeof(FrameHeader);
    end = put(end, crash.signal);
    end = put(end, crash.code);
    end = put(end, crash.address);
    end = put(end, crash.thread_id);
    end = put(end, crash.thread);
    end = put(end, crash.call);
    end = put(end, crash.refused_signal);
    end = put(end, crash.refused_target);
    const auto size = static_cast<std::uint32_t>(static_cast<std::size_t>(end - bytes) - sizeof(FrameHeader));
    put(bytes, FrameHeader{size, 0, static_cast<std::uint32_t>(Answer::kCrash)});
    if (write(report_fd, bytes, static_cast<std::size_t>(end - bytes)) < 0) _exit(1);
  }
  for (;;) pause();
}

}  // namespace

void report_crashes(int control_fd) {
  report_fd = control_fd;
  rank_process = getpid();
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigfillset(&action.sa_mask);
  for (const int signal : kSignals) sigdelset(&action.sa_mask, signal);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace plugfest::rank
