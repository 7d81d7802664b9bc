#include "harness/rank/stepping.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "fabric/system/clock.h"
#include "harness/rank/subject.h"

namespace plugfest::rank {

namespace {

// Each step costs a trap: about 1 µs, and 10 µs in a virtual machine.
constexpr int kMaxSteps = 8'000, kMaxStepsOfCall = 3000;
// Limits of the time in which a call of another thread returns. A thread that waits for a processor gets the longer.
constexpr Nanoseconds kPatience = 200'000, kMaxPatience = 20'000'000;
constexpr int kMaxImpatience = 50;

// Most calls are tests: after so many without a posted operation, the others give the turn back.
constexpr int kMaxCallsInTurn = 3;

// The thread whose calls are stepped yields the turn to the other threads, and gets it back when one has made a call.
enum Turn : std::uint32_t {
  kFree,     // no call is stepped: all threads run
  kStepped,  // the other threads begin no call
  kOthers,   // the stepped thread waits
};
std::atomic<std::uint32_t> turn{kFree};

struct Code {
  std::uintptr_t begin = 0, end = 0;
};

// State of the stepped thread. The handler of its traps uses it too.
struct Stepped {
  std::minstd_rand random;
  Code plugin;
  bool on = false;  // a call is stepped
  int steps_left = kMaxSteps, steps_of_call = 0;
  int steps_to_yield = 0;
  int impatience = 0;
  std::uint64_t waits_for = UINT64_MAX;  // the number of calls of others that must end before the next yield
};
Stepped stepped;
thread_local bool is_stepped = false;

// The calls of other threads that have returned: all, and those since they have the turn.
std::atomic<std::uint64_t> calls_of_others{0};
std::atomic<int> calls_in_turn{0};
// The other thread that began the last call.
std::atomic<pid_t> other_thread{0};

void wait_while(std::uint32_t value, Nanoseconds limit) {
  const timespec timeout{limit / 1'000'000'000, limit % 1'000'000'000};
  syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
}

void give_turn(Turn to) {
  turn.store(to);
  syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Whether a thread runs or waits for a processor. Async-signal-safe.
bool runs(pid_t thread) {
  char path[64], text[128];
  std::snprintf(path, sizeof path, "/proc/%d/stat", thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  const auto* const name_end = size < 0 ? nullptr : static_cast<char*>(memrchr(text, ')', static_cast<size_t>(size)));
  return name_end != nullptr && name_end + 2 < text + size && name_end[2] == 'R';
}

// Returns once another thread has made a call, unless that call waits.
[[maybe_unused]] void yield_turn() {
  const std::uint64_t calls = calls_of_others;
  if (calls == stepped.waits_for) return;
  calls_in_turn = 0;
  give_turn(kOthers);
  const Nanoseconds start = now_ns();
  do wait_while(kOthers, kPatience);
  while (turn == kOthers && now_ns() - start < kMaxPatience && (now_ns() - start < kPatience || runs(other_thread)));
  std::uint32_t others = kOthers;
  if (!turn.compare_exchange_strong(others, kStepped)) return;
  stepped.waits_for = calls;
  if (now_ns() - start >= kMaxPatience && ++stepped.impatience == kMaxImpatience) stepped.steps_left = 0;
}

void stop_stepping() {
  if (std::exchange(stepped.on, false)) give_turn(kFree);
}

#ifdef __x86_64__

constexpr bool kCanStep = true;
constexpr greg_t kTrapFlag = 0x100;

// Whether the next instruction is a system call that may block SIGTRAP or start a thread: a trap would then end the
// process.
bool leaves_reach(const greg_t* registers) {
  constexpr unsigned char kSyscall[] = {0x0f, 0x05};
  const greg_t number = registers[REG_RAX];
  return std::memcmp(reinterpret_cast<const void*>(registers[REG_RIP]), kSyscall, sizeof kSyscall) == 0 &&
         (number == SYS_rt_sigprocmask || number == SYS_clone || number == SYS_clone3 || number == SYS_fork ||
          number == SYS_vfork);
}

void on_trap(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_EFL] &= ~kTrapFlag;
  if (!is_stepped) return;
  const int saved_errno = errno;
  if (stepped.on && (stepped.steps_left == 0 || stepped.steps_of_call++ == kMaxStepsOfCall || leaves_reach(registers)))
    stop_stepping();
  if (stepped.on) {
    registers[REG_EFL] |= kTrapFlag;
    --stepped.steps_left;
    const auto at = static_cast<std::uintptr_t>(registers[REG_RIP]);
    if (at >= stepped.plugin.begin && at < stepped.plugin.end && --stepped.steps_to_yield <= 0) {
      stepped.steps_to_yield = 1 + static_cast<int>(stepped.random() % 3);
      yield_turn();
    }
  }
  errno = saved_errno;
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGTRAP, &action, nullptr);
}

// The trap sets the flag that causes the next one.
void trap() { asm volatile("int3"); }

#else

constexpr bool kCanStep = false;
void install_handler() {}
void trap() {}

#endif

bool traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  return false;
}

// The code of the object that has the plugin's functions.
Code plugin_code() {
  struct Search {
    std::uintptr_t address;
    Code found;
  } search{reinterpret_cast<std::uintptr_t>(library().function("test")), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const std::uintptr_t begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
          const std::uintptr_t end = begin + object->dlpi_phdr[i].p_memsz;
          if (search.address >= begin && search.address < end) search.found = {begin, end};
        }
        return 0;
      },
      &search);
  return search.found;
}

bool posts(const char* function) { return std::strcmp(function, "isend") == 0 || std::strcmp(function, "irecv") == 0; }

}  // namespace

Stepping::Stepping(std::uint64_t seed) {
  if (!kCanStep || traced()) return;
  install_handler();
  stepped = {.random = std::minstd_rand(static_cast<std::uint32_t>(seed)), .plugin = plugin_code()};
  is_stepped = true;
  some_calls_are_stepped = true;
}

Stepping::~Stepping() {
  if (!is_stepped) return;
  is_stepped = false;
  some_calls_are_stepped = false;
  signal(SIGTRAP, SIG_DFL);
}

void begin_call(const char* function) {
  if (!is_stepped) {
    other_thread = gettid();
    for (const Nanoseconds start = now_ns(); turn == kStepped && now_ns() - start < kMaxPatience;)
      wait_while(kStepped, kMaxPatience);
    return;
  }
  if (stepped.steps_left == 0 || stepped.random() % (posts(function) ? 2 : 16) != 0) return;
  stepped.steps_of_call = stepped.steps_to_yield = 0;
  turn = kStepped;
  stepped.on = true;
  trap();
}

void end_call(const char* function) {
  if (is_stepped) {
    stop_stepping();
    return;
  }
  ++calls_of_others;
  // Posted operations share more state than tests.
  if (!posts(function) && ++calls_in_turn < kMaxCallsInTurn) return;
  std::uint32_t others = kOthers;
  if (turn.compare_exchange_strong(others, kStepped)) give_turn(kStepped);
}

}  // namespace plugfest::rank
