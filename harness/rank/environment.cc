// Reports the environment variables that the plugin reads: every library in this process calls these getenv and
// secure_getenv.

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "harness/rank/server.h"
#include "harness/wire/protocol.h"

// The bounds of this program's code, from the linker.
extern "C" const char __executable_start, etext;

namespace plugfest::rank {

namespace {

constinit std::atomic<bool> reporting{false};

// Hashes of the names that were reported; 0: a free entry. Further names are not reported.
constinit std::array<std::atomic<std::uint64_t>, 256> reported_names{};

// True at the first call for a name.
bool is_new(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  for (std::size_t probe = 0; probe < reported_names.size(); ++probe) {
    std::atomic<std::uint64_t>& entry = reported_names[(hash + probe) % reported_names.size()];
    std::uint64_t present = entry.load(std::memory_order_relaxed);
    if (present == 0 && entry.compare_exchange_strong(present, hash)) return true;
    if (present == hash) return false;
  }
  return false;
}

// Allocates nothing: a replacement of malloc may read variables.
void report(std::string_view name) {
  if (name.size() > wire::kMaxVariableName || !is_new(name)) return;
  const int saved_errno = errno;
  std::uint32_t size = wire::kVariableRecord | static_cast<std::uint32_t>(name.size());
  const iovec parts[] = {{&size, sizeof size}, {const_cast<char*>(name.data()), name.size()}};
  while (writev(kLogFd, parts, 2) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

using Function = char*(const char*);

// `own`: the function's name in the C library. `caller`: the address to which the call returns.
char* read_variable(const char* own, std::atomic<Function*>& found, const char* name, const void* caller) {
  char* const value = replaced_function(found, own)(name);
  const auto* const address = static_cast<const char*>(caller);
  const bool by_rank = address >= &__executable_start && address < &etext;
  if (value != nullptr && !by_rank && reporting.load(std::memory_order_relaxed)) report(name);
  return value;
}

constinit std::atomic<Function*> next_getenv{nullptr};
constinit std::atomic<Function*> next_secure_getenv{nullptr};

}  // namespace

void report_variables() { reporting = true; }

}  // namespace plugfest::rank

extern "C" {

__attribute__((visibility("default"))) char* getenv(const char* name) noexcept {
  using namespace plugfest::rank;
  return read_variable("getenv", next_getenv, name, __builtin_return_address(0));
}

__attribute__((visibility("default"))) char* secure_getenv(const char* name) noexcept {
  using namespace plugfest::rank;
  return read_variable("secure_getenv", next_secure_getenv, name, __builtin_return_address(0));
}
}
