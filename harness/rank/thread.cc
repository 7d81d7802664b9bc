#include "harness/rank/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>

namespace plugfest::rank {

namespace {

// Sufficient for the arrays of a group of 256 buffers.
constexpr std::size_t kSize = 16 * 1024;

std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

std::int64_t number_at(const std::byte* bytes, std::size_t size) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes, size);
  return size == 4 ? static_cast<std::int32_t>(number) : number;
}

void append(std::string& text, const std::string& more) {
  if (!text.empty()) text += "; ";
  text += more;
}

constexpr std::size_t kSignalStack = 64 * 1024;
constexpr std::size_t kDeadStack = 16 * 1024;

// Threads run until the process ends, so states are never removed.
std::mutex all_mutex;
auto& all_threads = *new std::vector<std::unique_ptr<ThreadState>>;
thread_local ThreadState* mine = nullptr;

}  // namespace

ArgumentArea::ArgumentArea()
    : memory_(map_guarded(kSize, false)),
      handle_memory_(map_guarded(abi::kHandleBytes, true)),
      next_(at(memory_.address)) {
  begin();
}

ArgumentArea::~ArgumentArea() {
  unmap_guarded(memory_);
  unmap_guarded(handle_memory_);
}

void ArgumentArea::begin() {
  items_.clear();
  handle_used_ = false;
  std::memset(at(memory_.address), kCanary, kCanarySize);
  next_ = at(memory_.address) + kCanarySize;
}

void* ArgumentArea::add(std::string_view name, std::span<const std::byte> bytes, std::size_t item_size, bool input) {
  // Canaries follow directly, to detect a write one element past the end. The next array is aligned to 16.
  const std::size_t room = (bytes.size() + kCanarySize + 15) / 16 * 16;
  if (next_ + room > at(memory_.address) + kSize) throw std::length_error("too many buffers in one call");
  std::byte* start = next_;
  if (!bytes.empty()) std::memcpy(start, bytes.data(), bytes.size());
  std::memset(start + bytes.size(), kCanary, room - bytes.size());
  next_ += room;
  Item& item = items_.emplace_back(Item{name, start, item_size, {}, bytes.size()});
  if (input) item.before.assign(bytes.begin(), bytes.end());
  return start;
}

int* ArgumentArea::lasting_output(std::string_view name, int value) {
  static struct {
    int value;
    std::array<std::uint8_t, kCanarySize> canary;
  } lasting;
  lasting.canary.fill(kCanary);
  lasting.value = value;
  items_.push_back({name, reinterpret_cast<std::byte*>(&lasting.value), sizeof value, {}, sizeof value});
  return &lasting.value;
}

std::byte* ArgumentArea::handle(std::span<const std::byte, 128> bytes) {
  handle_used_ = true;
  std::byte* start = at(handle_memory_.address);
  std::memset(start - kCanarySize, kCanary, kCanarySize);
  std::memcpy(start, bytes.data(), abi::kHandleBytes);
  return start;
}

void ArgumentArea::finish(CallAnswer& answer) {
  if (compare_byte(at(memory_.address), kCanarySize, kCanary).bytes != 0)
    append(answer.damage, "wrote before its arguments");
  for (const Item& item : items_) {
    const std::byte* end = item.at + item.size;
    const Difference past = compare_byte(end, kCanarySize, kCanary);
    if (past.bytes != 0) {
      append(answer.damage, fmt::format("wrote past the end of {}[{}], {} bytes behind it", item.name,
                                        item.size / item.item_size, past.offset));
    }
    for (std::size_t i = 0; i < item.before.size(); i += item.item_size) {
      if (std::memcmp(item.at + i, item.before.data() + i, item.item_size) == 0) continue;
      append(answer.changes,
             fmt::format("changed {}[{}] from {} to {}", item.name, i / item.item_size,
                         number_at(item.before.data() + i, item.item_size), number_at(item.at + i, item.item_size)));
      break;
    }
    if (!item.before.empty()) std::memset(item.at, kOverwritten, item.size);
  }
  if (handle_used_ && compare_byte(at(handle_memory_.address) - kCanarySize, kCanarySize, kCanary).bytes != 0)
    append(answer.damage, "wrote before the handle");
}

void adopt_thread(std::string_view name) {
  auto state = std::make_unique<ThreadState>(name);
  mine = state.get();
  {
    const std::lock_guard lock(all_mutex);
    all_threads.push_back(std::move(state));
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
  for (const auto& thread : all_threads) {
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
