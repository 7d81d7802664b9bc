// An env plugin, v2 and v1, that passes on the environment and sets NCCL_ALGO and NCCL_PROTO.
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "harness/abi/env.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

// The texts that the plugin has returned, by variable.
struct Values {
  std::mutex mutex;
  std::map<std::string, std::string> texts;
};
Values& values() {
  static Values values;
  return values;
}

Result init(std::uint8_t, std::uint8_t, std::uint8_t, const char*) {
  const std::lock_guard lock(values().mutex);
  values().texts = {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "simple"}};
  return Result::kSuccess;
}
Result init_v2(std::uint8_t major, std::uint8_t minor, std::uint8_t patch, const char* suffix, abi::Logger) {
  return init(major, minor, patch, suffix);
}

Result finalize() {
  const std::lock_guard lock(values().mutex);
  values().texts.clear();
  return Result::kSuccess;
}

const char* get(const char* name) {
  const std::lock_guard lock(values().mutex);
  const auto known = values().texts.find(name);
  if (known != values().texts.end()) return known->second.c_str();
  const char* const text = std::getenv(name);
  return text == nullptr ? nullptr : values().texts.emplace(name, text).first->second.c_str();
}

}  // namespace

extern "C" {
extern abi::EnvV1 ncclEnvPlugin_v1;
extern abi::EnvV2 ncclEnvPlugin_v2;
abi::EnvV1 ncclEnvPlugin_v1 = {"EnvToy", init, finalize, get};
abi::EnvV2 ncclEnvPlugin_v2 = {"EnvToy", init_v2, finalize, get};
}
