#include "harness/control/process/failure_report.h"

#include <cxxabi.h>
#include <dirent.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

namespace plugfest::control {

namespace {

constexpr std::size_t kFrames = 32;

struct SystemCall {
  long number;
  const char* name;
};

constexpr SystemCall kSystemCalls[] = {
    {SYS_futex, "futex"},
    {SYS_ppoll, "ppoll"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_pselect6, "pselect6"},
    {SYS_wait4, "wait4"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_pause, "pause"},
    {SYS_epoll_wait, "epoll_wait"},
#endif
};

// "in system call futex", or "" when the thread is not in one.
std::string system_call(pid_t pid, pid_t tid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  long number = -1;
  if (!(file >> number) || number < 0) return "";
  for (const SystemCall& call : kSystemCalls)
    if (call.number == number) return fmt::format("in system call {}", call.name);
  return fmt::format("in system call {}", number);
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

// One frame, and the name of the file that contains its code; "" for none.
struct Frame {
  std::string text;
  std::string file;
};

// " at FILE:LINE", or "" without debug information. libdw finds the unit of an address in a table that GCC writes and
// Clang does not; without that table, this function searches all units.
std::string source_of(Dwfl_Module* module, Dwarf_Addr address) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  if (unit == nullptr)
    while ((unit = dwfl_module_nextcu(module, unit, &bias)) != nullptr && dwarf_haspc(unit, address - bias) != 1)
      continue;
  Dwarf_Line* line = unit == nullptr ? nullptr : dwarf_getsrc_die(unit, address - bias);
  const char* file = line == nullptr ? nullptr : dwarf_linesrc(line, nullptr, nullptr);
  int number = 0;
  if (file == nullptr || dwarf_lineno(line, &number) != 0) return "";
  return fmt::format(" at {}:{}", file, number);
}

Frame describe(Dwfl* dwfl, Dwarf_Addr address) {
  Dwfl_Module* module = dwfl_addrmodule(dwfl, address);
  if (module == nullptr) return {fmt::format("0x{:x}", address), ""};
  Dwarf_Addr start = 0;
  const char* path = dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
  const std::string file = path == nullptr ? "?" : std::filesystem::path(path).filename().string();
  const char* name = dwfl_module_addrname(module, address);
  std::string text = name == nullptr ? fmt::format("+0x{:x}", address - start) : demangled(name);
  text += source_of(module, address);
  return {fmt::format("{} ({})", text, file), file};
}

// Removes the callers of the plugin: frames of the harness, and those of the C library that start a thread.
void remove_harness(std::vector<Frame>& frames) {
  const auto is_ours = [](const Frame& frame) {
    return frame.file == "plugfest-rank" || frame.file.starts_with("libc.so") || frame.file.starts_with("libstdc++.so");
  };
  const auto outermost = std::find_if_not(frames.rbegin(), frames.rend(), is_ours);
  if (outermost != frames.rend()) frames.erase(outermost.base(), frames.end());
}

struct Walk {
  Dwfl* dwfl;
  StackPart part;
  bool innermost = true;
  // Whether the previous frame was the return from a signal handler.
  bool at_signal = false;
  bool collecting = false;
  std::vector<Frame> frames;
};

int on_frame(Dwfl_Frame* frame, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Dwarf_Addr address = 0;
  // True for the innermost frame, the trampoline of a signal handler, and the frame that the signal interrupted.
  bool interrupted = false;
  if (!dwfl_frame_pc(frame, &address, &interrupted)) return DWARF_CB_ABORT;
  if (walk.part == StackPart::kWhole || walk.at_signal) walk.collecting = true;
  walk.at_signal = interrupted && !walk.innermost;
  walk.innermost = false;
  // A return address may belong to the line after the call.
  if (walk.collecting) walk.frames.push_back(describe(walk.dwfl, interrupted ? address : address - 1));
  return walk.frames.size() < kFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

}  // namespace

std::vector<std::string> read_stack(pid_t pid, pid_t tid, StackPart part) {
  if (tid == 0) return {};
  // With another path, some systems query a server on the network for separate debug information.
  static char no_debug_path[] = "";
  static char* debug_path = no_debug_path;
  static const Dwfl_Callbacks callbacks = {dwfl_linux_proc_find_elf, dwfl_standard_find_debuginfo, nullptr,
                                           &debug_path};
  const std::unique_ptr<Dwfl, void (*)(Dwfl*)> dwfl(dwfl_begin(&callbacks), dwfl_end);
  Walk walk{.dwfl = dwfl.get(), .part = part, .frames = {}};
  // Attaching stops the thread and would hide its system call.
  const std::string call = part == StackPart::kWhole ? system_call(pid, tid) : "";
  if (dwfl && dwfl_linux_proc_report(dwfl.get(), pid) == 0 && dwfl_report_end(dwfl.get(), nullptr, nullptr) == 0 &&
      dwfl_linux_proc_attach(dwfl.get(), pid, false) == 0)
    dwfl_getthread_frames(dwfl.get(), tid, on_frame, &walk);
  remove_harness(walk.frames);
  std::vector<std::string> lines;
  if (!call.empty()) lines.push_back(call);
  for (const Frame& frame : walk.frames) lines.push_back(frame.text);
  return lines;
}

pid_t thread_named(pid_t pid, std::string_view name) {
  std::error_code error;
  const std::string kept(name.substr(0, 15));
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    std::ifstream file(entry.path() / "comm");
    std::string comm;
    if (std::getline(file, comm) && comm == kept) return static_cast<pid_t>(std::stol(entry.path().filename()));
  }
  return 0;
}

namespace {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

// "process 812 (plugfest)". `target`: as the first argument of kill(2).
std::string target_text(pid_t target, pid_t rank) {
  if (target == -1) return "all processes";
  if (target == 0 || target == -rank) return "its own process group";
  if (target == rank) return "its own process";
  if (target < 0) return fmt::format("process group {}, to which plugfest belongs", -target);
  std::ifstream file(fmt::format("/proc/{}/comm", target));
  std::string program;
  std::getline(file, program);
  return fmt::format("process {}{}", target, program.empty() ? "" : " (" + program + ")");
}

// "tried to send SIGKILL to process 812 (plugfest)".
std::string refused_text(const wire::Crash& crash, pid_t rank) {
  const std::string target = target_text(crash.refused_target, rank);
  switch (crash.refused_call) {
    case SYS_reboot:
      return "tried to reboot the machine";
    case SYS_ptrace:
      return fmt::format("tried to trace {} with ptrace", target);
    case SYS_process_vm_writev:
      return fmt::format("tried to write to the memory of {} with process_vm_writev", target);
    case SYS_prlimit64:
      return fmt::format("tried to change a limit of {} with prlimit", target);
    case SYS_fcntl:
      return fmt::format("tried to direct signals of a descriptor to {} with F_SETOWN", target);
    default:
      return fmt::format("tried to send {} to {}", signal_name(crash.refused_action), target);
  }
}

// The text of a call, preceded by `function` when the call is a workload that calls several functions.
std::string call_text(const PendingCall* call, const std::string& function) {
  if (call == nullptr || call->text.empty()) return function;
  if (function.empty() || call->text.starts_with(function)) return call->text;
  return fmt::format("{} in {}", function, call->text);
}

}  // namespace

Failure describe_crash(const FailedRank& rank, const wire::Crash& crash, const PendingCall* running,
                       const Ledger& ledger) {
  Failure failure;
  failure.thread = text_of(crash.thread);
  failure.call = call_text(running, text_of(crash.call));
  failure.result = crash.refused_call == 0 ? signal_name(crash.signal) : refused_text(crash, rank.pid);
  failure.signal = crash.signal;
  failure.address = crash.address;
  if (rank.pid > 0) failure.stack = read_stack(rank.pid, crash.thread_id, StackPart::kBelowSignal);
  const std::string subject =
      failure.call.empty() ? fmt::format("its thread {}", failure.thread.empty() ? "?" : failure.thread) : failure.call;
  const std::string exception = text_of(crash.exception);
  if (!exception.empty()) {
    failure.result = "threw " + exception;
    const auto throws = [](const std::string& frame) { return frame.find("__cxa_throw") != std::string::npos; };
    const auto thrown = std::find_if(failure.stack.begin(), failure.stack.end(), throws);
    if (thrown != failure.stack.end()) failure.stack.erase(failure.stack.begin(), thrown + 1);
  }
  const bool says_what_happened = crash.refused_call != 0 || !exception.empty();
  failure.what =
      fmt::format("rank {}: {} {}{}", rank.name, subject, says_what_happened ? "" : "crashed: ", failure.result);
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS)
    failure.what += fmt::format(" at address 0x{:x}{}", crash.address, ledger.describe(crash.address));
  return failure;
}

Failure describe_exit(const FailedRank& rank, int wait_status, const PendingCall* running, const std::string& reason) {
  Failure failure;
  failure.thread = "?";
  if (running != nullptr) failure.call = running->text;
  if (WIFSIGNALED(wait_status)) {
    failure.signal = WTERMSIG(wait_status);
    failure.result = fmt::format("the process was ended by {}", signal_name(failure.signal));
    if (failure.signal == SIGKILL)
      failure.result += ", by the kernel (out of memory: see dmesg), the plugin or another process";
    // A thread that blocks signals cannot report its call.
    if (failure.signal == SIGSYS) failure.result += ", as for a signal to plugfest";
  } else {
    failure.result = fmt::format("the process ended with exit code {}", WEXITSTATUS(wait_status));
  }
  if (!reason.empty()) failure.result = reason;
  failure.what = failure.call.empty() ? fmt::format("rank {}: {}", rank.name, failure.result)
                                      : fmt::format("rank {}: {}: {}", rank.name, failure.call, failure.result);
  return failure;
}

std::string describe_closed_channel(pid_t pid, const std::string& failed_start) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string folder = fmt::format("/proc/{}/", pid);
  for (const int fd : {wire::kControlFd, wire::kMainFd}) {
    const std::string target = fs::read_symlink(fmt::format("{}fd/{}", folder, fd), error).string();
    if (!target.starts_with("socket:"))
      return fmt::format("the plugin closed descriptor {}, which belongs to plugfest", fd);
  }
  std::string reason = failed_start.empty() ? "it closed its connection to plugfest"
                                            : "plugfest cannot start a thread in the rank: " + failed_start;
  rlimit files = {}, memory = {};
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &files) == 0) {
    const auto open = std::distance(fs::directory_iterator(folder + "fd", error), fs::directory_iterator());
    if (static_cast<rlim_t>(open) >= files.rlim_cur)
      reason += fmt::format("; {} descriptors are open, and its limit is {} (RLIMIT_NOFILE)", open, files.rlim_cur);
  }
  if (prlimit(pid, RLIMIT_AS, nullptr, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY)
    reason += fmt::format("; its address space is limited to {} bytes (RLIMIT_AS)", memory.rlim_cur);
  return reason;
}

Failure describe_hang(const FailedRank& rank, const PendingCall& call, const std::string& function, bool frozen,
                      std::int64_t timeout_ns) {
  Failure failure;
  failure.thread = call.thread;
  failure.call = call_text(&call, function);
  if (failure.call.empty()) failure.call = "a request of the harness";
  failure.result = "did not return";
  if (!frozen && rank.pid > 0)
    failure.stack = read_stack(rank.pid, thread_named(rank.pid, call.thread), StackPart::kWhole);
  failure.what = fmt::format("rank {}: {} did not return within {:g} s{}", rank.name, failure.call,
                             static_cast<double>(timeout_ns) / 1e9, frozen ? " (the rank is frozen)" : "");
  return failure;
}

}  // namespace plugfest::control
