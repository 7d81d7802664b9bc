#include "harness/rank/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <vector>

namespace plugfest::rank {

namespace {

constexpr std::size_t kSignalStack = 64 * 1024;
constexpr std::size_t kDeadStack = 16 * 1024;

// Threads run until the process ends, so states are never removed.
std::mutex all_mutex;
std::vector<std::unique_ptr<ThreadState>>& all() {
  static auto* threads = new std::vector<std::unique_ptr<ThreadState>>;
  return *threads;
}
thread_local ThreadState* mine = nullptr;

}  // namespace

void adopt_thread(std::string_view name) {
  auto state = std::make_unique<ThreadState>(name);
  mine = state.get();
  {
    const std::lock_guard lock(all_mutex);
    all().push_back(std::move(state));
  }
  // The kernel limits names to 15 characters.
  pthread_setname_np(pthread_self(), std::string(name.substr(0, 15)).c_str());
  stack_t stack{};
  stack.ss_size = kSignalStack;
  stack.ss_sp = mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

ThreadState* this_thread_or_null() { return mine; }
ThreadState& this_thread() { return *mine; }

std::string call_of_thread(std::string_view name) {
  const std::lock_guard lock(all_mutex);
  for (const auto& thread : all()) {
    if (thread->name != name) continue;
    const char* call = thread->call.load(std::memory_order_relaxed);
    return call == nullptr ? "" : call;
  }
  return "";
}

__attribute__((noinline)) void overwrite_dead_stack() {
  char below[kDeadStack];
  std::memset(below, kOverwritten, sizeof below);
  asm volatile("" : : "r"(below) : "memory");  // keeps the stores
}

}  // namespace plugfest::rank
