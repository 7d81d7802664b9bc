// The file name under which a library of mutants was loaded, which selects the mutation.
#pragma once

#include <dlfcn.h>

#include <string>
#include <string_view>

namespace plugfest::mutants {

/// The path under which this library was loaded.
inline std::string own_path() {
  static const char here = 0;
  Dl_info info{};
  dladdr(&here, &info);
  return info.dli_fname != nullptr ? info.dli_fname : "";
}

/// "x" of ".../libnccl-net-x.so".
inline std::string mutant_name(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kPrefix = "libnccl-net-", kSuffix = ".so";
  if (file.size() <= kPrefix.size() + kSuffix.size()) return {};
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

}  // namespace plugfest::mutants
