// Reports crashes to the controller, and protects plugfest from the plugin.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "fabric/system/process.h"
#include "harness/rank/exceptions.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

int report_fd = -1;
pid_t rank_process = -1;
std::atomic<bool> reported{false};
constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};

// Encodes numbers and arrays as wire::Writer does, into memory that exists.
struct FixedWriter {
  std::byte* end;
  template <typename... T>
  void fields(const char*, const T&... values) {
    ((std::memcpy(end, &values, sizeof values), end += sizeof values), ...);
  }
};

#ifdef __x86_64__
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// A system call that acts on another process. `target` and `action`: indices of arguments. The call acts if its
// argument `action` has the value `acts`, or is not zero if `acts` is 0.
struct GuardedCall {
  int number;
  int target;
  int action;
  std::uint32_t acts = 0;
};
constexpr GuardedCall kGuardedCalls[] = {
    {SYS_kill, 0, 1},
    {SYS_tkill, 0, 1},
    {SYS_rt_sigqueueinfo, 0, 1},
    {SYS_tgkill, 0, 2},
    {SYS_rt_tgsigqueueinfo, 0, 2},
    {SYS_ptrace, 1, 0},             // 0: PTRACE_TRACEME
    {SYS_process_vm_writev, 0, 3},  // where to write
    {SYS_prlimit64, 0, 2},          // the new limit
    {SYS_fcntl, 2, 1, F_SETOWN},
};

// Sets what `crash` says about the call that the kernel refused. Async-signal-safe.
void describe_refused_call(Crash& crash, const siginfo_t& info, const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#ifdef __x86_64__
  const std::int64_t arguments[] = {machine.gregs[REG_RDI], machine.gregs[REG_RSI], machine.gregs[REG_RDX],
                                    machine.gregs[REG_R10]};
#else
  const std::uint64_t arguments[] = {machine.regs[0], machine.regs[1], machine.regs[2], machine.regs[3]};
#endif
  for (const GuardedCall& call : kGuardedCalls) {
    if (info.si_syscall != call.number) continue;
    crash.refused_call = call.number;
    crash.refused_target = static_cast<std::int32_t>(arguments[call.target]);
    crash.refused_action = static_cast<std::int32_t>(arguments[call.action]);
  }
  if (info.si_syscall == SYS_reboot) crash.refused_call = SYS_reboot;
}

// Async-signal-safe: no allocation, no lock, no encode().
void handle(int signal, siginfo_t* info, void* context) {
  // A process that the plugin has forked may end like this, for example as part of a pipeline.
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
    if (signal == SIGABRT) {
      const char* const exception = uncaught_exception();
      std::copy_n(exception, std::min(std::strlen(exception), crash.exception.size() - 1), crash.exception.data());
    }
    if (signal == SIGSYS) describe_refused_call(crash, *info, context);
    std::byte bytes[sizeof(FrameHeader) + wire::kCrashBytes];
    FixedWriter writer{bytes + sizeof(FrameHeader)};
    crash.visit(writer);
    const auto size = static_cast<std::size_t>(writer.end - bytes);
    const auto kind = static_cast<std::uint32_t>(Answer::kCrash);
    const FrameHeader header{static_cast<std::uint32_t>(size - sizeof header), 0, kind};
    std::memcpy(bytes, &header, sizeof header);
    if (write(report_fd, bytes, size) < 0) _exit(1);
  }
  for (;;) pause();
}

// When process ids wrap, they restart at this one: an older process with a lower id cannot be a descendant.
constexpr pid_t kReservedIds = 300;

// The values of kill(2) for the ancestors of this process and for their process groups.
std::vector<pid_t> ancestors() {
  std::vector<pid_t> targets;
  for (pid_t pid = getppid(); pid > 1;) {
    targets.push_back(pid);
    const std::optional<ProcessEntry> entry = process_entry(pid);
    if (!entry) break;
    if (entry->group > 1) targets.push_back(-entry->group);
    pid = entry->parent;
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

class Filter {
 public:
  void load(std::size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)); }
  // The low half of an argument; the kernel also ignores the high half of a pid_t.
  void load_argument(int index) { load(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(index)); }
  void add(unsigned code, std::uint32_t value) { add(code, value, 0, 0); }
  void add(unsigned code, std::uint32_t value, int if_true, int if_false) {
    instructions_.push_back({static_cast<std::uint16_t>(code), static_cast<std::uint8_t>(if_true),
                             static_cast<std::uint8_t>(if_false), value});
  }
  // Returns `action` from the filter if the loaded value is equal, or not equal, to `value`.
  void if_equal(std::int64_t value, std::uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, 1);
    add(BPF_RET | BPF_K, action);
  }
  void unless_equal(std::uint32_t value, std::uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    add(BPF_RET | BPF_K, action);
  }

  void install() {
    const sock_fprog program = {static_cast<unsigned short>(instructions_.size()), instructions_.data()};
    const auto set = [&] { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0; };
    // Without CAP_SYS_ADMIN the kernel requires that programs of the plugin gain no privileges.
    if (!set() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) set();
  }

 private:
  std::vector<sock_filter> instructions_;
};

struct sigaction reporting_action() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigfillset(&action.sa_mask);
  for (const int signal : kCrashSignals) sigdelset(&action.sa_mask, signal);
  sigdelset(&action.sa_mask, SIGPIPE);
  return action;
}

// Whether this is a handler of plugfest's NIC, which passes all faults except its own to the handler before it. The
// libibverbs of rdma-core has no handlers.
bool is_of_nic(const struct sigaction& action) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(action.sa_sigaction), &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "/libibverbs.so") != nullptr;
}

}  // namespace

void keep_reporting_crashes() {
  const struct sigaction action = reporting_action();
  for (const int signal : kCrashSignals) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    if (!is_of_nic(current)) sigaction(signal, &action, nullptr);
  }
}

void report_crashes(int control_fd) {
  report_fd = control_fd;
  rank_process = getpid();
  keep_reporting_crashes();
  struct sigaction action = reporting_action();
  if (std::getenv("PLUGFEST_RANK_SIGPIPE") != nullptr) {
    sigaction(SIGPIPE, &action, nullptr);
    return;
  }
  // Python and many other users of NCCL survive SIGPIPE, so only XF-37 checks for it. Programs that the plugin starts
  // inherit SIG_IGN, but no handler.
  action.sa_sigaction = [](int, siginfo_t*, void*) {};
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

void protect_plugfest() {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.unless_equal(kArchitecture, SECCOMP_RET_ALLOW);
  filter.load(offsetof(seccomp_data, nr));
  filter.if_equal(SYS_reboot, SECCOMP_RET_TRAP);  // ends the process namespace
  // For each call: continues with its action in X and its target loaded if it matches, or tries the next.
  constexpr int kInstructions = 7;
  int left = static_cast<int>(std::size(kGuardedCalls));
  for (const GuardedCall& call : kGuardedCalls) {
    filter.add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call.number), 0, kInstructions - 1);
    filter.load_argument(call.action);
    const bool acts_if_equal = call.acts != 0;
    filter.add(BPF_JMP | BPF_JEQ | BPF_K, call.acts, acts_if_equal ? 0 : 3, acts_if_equal ? 3 : 0);
    filter.add(BPF_MISC | BPF_TAX, 0);
    filter.load_argument(call.target);
    filter.add(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(kInstructions * --left + 2));
    filter.add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter.add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

  filter.if_equal(-1, SECCOMP_RET_TRAP);
  for (const pid_t target : ancestors()) filter.if_equal(target, SECCOMP_RET_TRAP);
  const pid_t self = getpid();
  const pid_t older = std::min(kReservedIds, self) - 1;
  filter.add(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
  filter.add(BPF_JMP | BPF_JGT | BPF_K, static_cast<std::uint32_t>(older), 1, 0);
  filter.add(BPF_RET | BPF_K, SECCOMP_RET_TRAP);

  // This process by its id, by its group's id, or as "own group".
  filter.add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0);
  filter.add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(self), 2, 0);
  filter.add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(-self), 1, 0);
  filter.add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter.add(BPF_MISC | BPF_TXA, 0);
  filter.if_equal(SIGKILL, SECCOMP_RET_TRAP);
  filter.if_equal(SIGSTOP, SECCOMP_RET_TRAP);
  filter.add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter.install();
}

}  // namespace plugfest::rank
