// Env interface v1 and v2: symbols `ncclEnvPlugin_v1` and `_v2`, of NCCL 2.28.7 and 2.30.7.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi {

/// `Init`: v2 also gets the logger.
template <typename Init>
struct Env {
  const char* name;
  Init init;
  Result (*finalize)();
  /// The value of a variable, or null. It is valid until finalize, or until the same variable is asked for again.
  const char* (*getEnv)(const char* name);
};
using EnvV1 =
    Env<Result (*)(std::uint8_t ncclMajor, std::uint8_t ncclMinor, std::uint8_t ncclPatch, const char* suffix)>;
using EnvV2 = Env<Result (*)(std::uint8_t ncclMajor, std::uint8_t ncclMinor, std::uint8_t ncclPatch, const char* suffix,
                             Logger logger)>;
static_assert(sizeof(EnvV1) == 32 && sizeof(EnvV2) == 32);

}  // namespace plugfest::abi
