// Env plugins v2 with one bug each, which faults/interfaces.cc declares. They pass on the environment. This source is
// compiled once for each, with the macro LIBRARY_<name>.
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "harness/abi/env.h"

namespace {

using plugfest::abi::Result;

Result init(std::uint8_t, std::uint8_t, std::uint8_t, const char*, plugfest::abi::Logger) {
#ifdef LIBRARY_env_opens_once
  static std::atomic<int> opened = 0;
  if (opened++ != 0) return Result::kInvalidUsage;
#endif
  return Result::kSuccess;
}

[[maybe_unused]] Result finalize() { return Result::kSuccess; }

const char* get(const char* name) {
#if defined LIBRARY_env_has_one_buffer
  // All values are in one place.
  static char buffer[1 << 16];
  const char* const text = std::getenv(name);
  return text == nullptr ? nullptr : std::strncpy(buffer, text, sizeof buffer - 1);
#elif defined LIBRARY_env_knows_all
  // Unknown variables are empty.
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
#elif defined LIBRARY_env_shares_name
  // The variable of the last call, of any thread, decides.
  static std::atomic<const char*> asked;
  asked = name;
  for (int i = 0; i < 20; ++i) ::sched_yield();  // lets another thread in
  return std::getenv(asked);
#else
  return std::getenv(name);
#endif
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern plugfest::abi::EnvV2 ncclEnvPlugin_v2;
#ifdef LIBRARY_env_without_finalize
plugfest::abi::EnvV2 ncclEnvPlugin_v2 = {"Mutant", init, nullptr, get};
#else
plugfest::abi::EnvV2 ncclEnvPlugin_v2 = {"Mutant", init, finalize, get};
#endif
}
