#include "harness/plugin/nccl/nccl_builtin.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "harness/plugin/elf/inspect.h"
#include "harness/plugin/layout.h"
#include "harness/plugin/nccl/nccl_library.h"
#include "harness/plugin/nccl/redirect.h"
#include "harness/plugin/resolve.h"

namespace plugfest::plugin {
namespace {

constexpr std::string_view kScheme = "nccl:";
constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kTableApi = 11;

/// Replaces cudaGetDevice: returns cudaSuccess and device 0.
int device_zero(int* device) {
  *device = 0;
  return 0;
}

}  // namespace

bool is_builtin(std::string_view plugin) { return plugin.starts_with(kScheme); }

std::string find_nccl() {
  if (const char* path = std::getenv("NCCL_LIBRARY"); path != nullptr && *path != '\0') return path;
  if (void* const loaded = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) {
    link_map* map = nullptr;
    const bool known = ::dlinfo(loaded, RTLD_DI_LINKMAP, &map) == 0;
    const std::string path = known ? map->l_name : "";
    ::dlclose(loaded);
    if (known) return path;
  }
  if (std::string path = find_library(kLibrary); !path.empty()) return path;
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') roots.emplace_back(root);
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots)
    for (const char* folder : {"/lib64/", "/lib/"})
      if (std::string path = root + folder + kLibrary; ::access(path.c_str(), R_OK) == 0) return path;
  return "";
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Builtin load_builtin(const std::string& plugin) {
  const std::string transport = plugin.substr(std::min(kScheme.size(), plugin.size()));
  const bool socket = ::strcasecmp(transport.c_str(), "Socket") == 0;
  if (!socket && ::strcasecmp(transport.c_str(), "IB") != 0)
    throw LoadError(fmt::format("{}: no such built-in transport: it is nccl:IB or nccl:Socket", plugin));
  NcclLibrary nccl(plugin);
  if (nccl.version() / 100 != kNcclOfTransports)
    throw LoadError(
        fmt::format("{}: {} is NCCL {}, and the tables of NVIDIA's transports are known for 2.28 only: set "
                    "NCCL_LIBRARY to such a library",
                    plugin, nccl.path(), nccl.version_text()));
  void* const table = nccl.find(socket ? "ncclNetSocket" : "ncclNetIb", api_layout(kTableApi).table_size);
  if (socket && !redirect(nccl.find("cudaGetDevice"), reinterpret_cast<const void*>(&device_zero)))
    throw LoadError(fmt::format("{}: cudaGetDevice cannot be redirected: {}", plugin, std::strerror(errno)));
  return {
      .library = nccl.release(), .table = table, .api = kTableApi, .path = nccl.path(), .nccl_version = nccl.version()};
}

}  // namespace plugfest::plugin
