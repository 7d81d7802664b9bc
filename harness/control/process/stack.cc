#include "harness/control/process/stack.h"

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "fabric/system/process.h"
#include "harness/plugin/elf_file.h"

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
std::string system_call(pid_t thread) {
  std::ifstream file(thread_folder(thread) + "/syscall");
  long number = -1;
  if (!(file >> number) || number < 0) return "";
  for (const SystemCall& call : kSystemCalls)
    if (call.number == number) return fmt::format("in system call {}", call.name);
  return fmt::format("in system call {}", number);
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
  std::string text = name == nullptr ? fmt::format("+0x{:x}", address - start) : plugin::demangled(name);
  text += source_of(module, address);
  return {fmt::format("{} ({})", text, file), file};
}

// Removes the callers of the plugin: frames of the harness, and frames of the C library that start a thread.
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
  const std::string call = part == StackPart::kWhole ? system_call(tid) : "";
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
    const auto thread = static_cast<pid_t>(std::stol(entry.path().filename()));
    std::ifstream file(thread_folder(thread) + "/comm");
    std::string comm;
    if (std::getline(file, comm) && comm == kept) return thread;
  }
  return 0;
}

std::string place_in_plugin(const std::vector<std::string>& stack, const std::string& library) {
  std::error_code error;
  const std::string file = fmt::format("({})", std::filesystem::canonical(library, error).filename().string());
  const auto frame = std::find_if(stack.begin(), stack.end(), [&](const auto& line) { return line.ends_with(file); });
  if (frame == stack.end()) return "";
  // "read_all(int) at /src/p.c:56 (libp.so)", or "read_all(int) (libp.so)" without debug information.
  std::string place = frame->substr(0, frame->rfind(" ("));
  const std::size_t at = place.rfind(" at ");
  if (at != std::string::npos) place = std::filesystem::path(place.substr(at + 4)).filename().string();
  return place;
}

}  // namespace plugfest::control
