// Finds libnccl, reads its static symbol table, and makes its tables callable.
#include "harness/plugin/nccl_builtin.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "harness/plugin/elf_file.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/layout.h"
#include "harness/plugin/redirect.h"
#include "harness/plugin/resolve.h"

namespace plugfest::plugin {
namespace {

constexpr std::string_view kScheme = "nccl:";
constexpr const char* kLibrary = "libnccl.so.2";
/// Releases 2.28.x keep their transports in tables of net v11.
constexpr int kKnownMajorMinor = 228;
constexpr int kTableApi = 11;

struct CloseLibrary {
  void operator()(void* handle) const { ::dlclose(handle); }
};
using Handle = std::unique_ptr<void, CloseLibrary>;

link_map* map_of(void* handle) {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

/// What cudaGetDevice of libnccl becomes: cudaSuccess, device 0.
int device_zero(int* device) {
  *device = 0;
  return 0;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// A symbol that the library does not export, at its place in memory.
ElfSymbol find_symbol(const ElfFile& file, std::string_view name, const std::string& path) {
  for (ElfSymbol& symbol : file.static_symbols(name))
    if (symbol.name == name && symbol.defined) return std::move(symbol);
  throw LoadError(
      fmt::format("{}: no symbol {}: NVIDIA's transports are found by the static symbol table, and this "
                  "library is stripped of it or is not NCCL's own",
                  path, name));
}

void* in_memory(const ElfSymbol& symbol, const link_map& map) {
  return reinterpret_cast<void*>(map.l_addr + symbol.value);
}

}  // namespace

bool is_builtin(std::string_view plugin) { return plugin.starts_with(kScheme); }

std::string find_nccl() {
  if (const char* path = std::getenv("NCCL_LIBRARY"); path != nullptr && *path != '\0') return path;
  if (const Handle loaded{::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)}; loaded != nullptr)
    if (const link_map* map = map_of(loaded.get()); map != nullptr) return map->l_name;
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

Builtin load_builtin(const std::string& plugin) {
  const std::string transport = plugin.substr(std::min(kScheme.size(), plugin.size()));
  const bool socket = ::strcasecmp(transport.c_str(), "Socket") == 0;
  if (!socket && ::strcasecmp(transport.c_str(), "IB") != 0)
    throw LoadError(fmt::format("{}: no such built-in transport: it is nccl:IB or nccl:Socket", plugin));
  const std::string path = find_nccl();
  if (path.empty())
    throw LoadError(fmt::format("{}: no {}: install NCCL or set NCCL_LIBRARY to the library's path", plugin, kLibrary));

  try {
    const ElfFile file(path);
    Handle library{::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)};
    if (library == nullptr) throw LoadError(fmt::format("{}: {}", plugin, ::dlerror()));
    using GetVersion = int (*)(int*);
    const auto get_version = reinterpret_cast<GetVersion>(::dlsym(library.get(), "ncclGetVersion"));
    int version = 0;
    if (get_version == nullptr || get_version(&version) != 0)
      throw LoadError(fmt::format("{}: {} is not NCCL: it has no ncclGetVersion", plugin, path));
    if (version / 100 != kKnownMajorMinor)
      throw LoadError(
          fmt::format("{}: {} is NCCL {}, and the tables of NVIDIA's transports are known for 2.28 only: set "
                      "NCCL_LIBRARY to such a library",
                      plugin, path, version_text(version)));
    const link_map* const map = map_of(library.get());
    if (map == nullptr) throw LoadError(fmt::format("{}: the loader does not tell where {} lies", plugin, path));
    const ElfSymbol table = find_symbol(file, socket ? "ncclNetSocket" : "ncclNetIb", path);
    if (table.size != api_layout(kTableApi).net_size)
      throw LoadError(fmt::format("{}: {} of {} has {} bytes, and a table of net v{} has {}", plugin, table.name, path,
                                  table.size, kTableApi, api_layout(kTableApi).net_size));
    if (socket) {
      void* const get_device = in_memory(find_symbol(file, "cudaGetDevice", path), *map);
      if (!redirect(get_device, reinterpret_cast<const void*>(&device_zero)))
        throw LoadError(fmt::format("{}: cudaGetDevice cannot be redirected: {}", plugin, std::strerror(errno)));
    }
    return {.library = library.release(),
            .table = in_memory(table, *map),
            .api = kTableApi,
            .path = path,
            .nccl_version = version};
  } catch (const ElfError& error) {
    throw LoadError(fmt::format("{}: {}: {}", plugin, path, error.what()));
  }
}

}  // namespace plugfest::plugin
