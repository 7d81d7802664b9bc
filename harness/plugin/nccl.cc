#include "harness/plugin/nccl.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/core.h>
#include <link.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "harness/plugin/inspect.h"
#include "harness/plugin/layout.h"
#include "harness/plugin/releases.h"
#include "harness/plugin/resolve.h"

namespace plugfest::plugin {
namespace {

constexpr std::string_view kScheme = "nccl:";
constexpr const char* kLibrary = "libnccl.so.2";

// Replaces cudaGetDevice: returns cudaSuccess and device 0.
int device_zero(int* device) {
  *device = 0;
  return 0;
}

#if defined(__x86_64__)
// jmp *[rip+0]; the address follows.
constexpr std::array<unsigned char, 6> kJump = {0xff, 0x25, 0, 0, 0, 0};
#elif defined(__aarch64__)
// ldr x16, .+8 ; br x16; the address follows.
constexpr std::array<unsigned char, 8> kJump = {0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6};
#else
constexpr std::array<unsigned char, 0> kJump = {};
#endif

}  // namespace

void NcclLibrary::Close::operator()(void* handle) const { ::dlclose(handle); }

NcclLibrary::NcclLibrary(const std::string& purpose) : purpose_(purpose), path_(require_nccl(purpose)) {
  try {
    file_ = std::make_unique<ElfFile>(path_);
  } catch (const ElfError& error) {
    throw LoadError(fmt::format("{}: {}: {}", purpose_, path_, error.what()));
  }
  handle_.reset(::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle_ == nullptr) throw LoadError(fmt::format("{}: {}", purpose_, ::dlerror()));
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(handle_.get(), "ncclGetVersion"));
  if (get_version == nullptr || get_version(&version_) != 0)
    throw LoadError(fmt::format("{}: {} is not NCCL: it has no ncclGetVersion", purpose_, path_));
  link_map* map = nullptr;
  if (::dlinfo(handle_.get(), RTLD_DI_LINKMAP, &map) != 0)
    throw LoadError(fmt::format("{}: the dynamic loader does not know the load address of {}", purpose_, path_));
  load_address_ = map->l_addr;
}

std::string NcclLibrary::version_text() const { return nccl_version_text(version_); }

std::map<std::string, void*> NcclLibrary::functions(const std::string& prefix) const {
  std::map<std::string, void*> found;
  for (const ElfSymbol& symbol : file_->static_symbols(prefix))
    if (symbol.defined && symbol.type == STT_FUNC && symbol.name.starts_with(prefix))
      found[symbol.name] = reinterpret_cast<void*>(load_address_ + symbol.value);
  return found;
}

void* NcclLibrary::find(const std::string& name, std::size_t size) const {
  for (const ElfSymbol& symbol : file_->static_symbols(name)) {
    if (symbol.name != name || !symbol.defined) continue;
    if (size != 0 && symbol.size != size)
      throw LoadError(
          fmt::format("{}: {} of {} has {} bytes, and {} were expected", purpose_, name, path_, symbol.size, size));
    return reinterpret_cast<void*>(load_address_ + symbol.value);
  }
  throw LoadError(
      fmt::format("{}: {} has no symbol {}: its static symbol table is stripped, or it is not NVIDIA's build", purpose_,
                  path_, name));
}

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

std::string require_nccl(const std::string& purpose) {
  std::string path = find_nccl();
  if (path.empty())
    throw LoadError(fmt::format("{}: no libnccl.so.2: set NCCL_LIBRARY to the library's path, or run\n    {}", purpose,
                                kFetchNccl));
  return path;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Builtin load_builtin(const std::string& plugin) {
  const std::string transport = plugin.substr(std::min(kScheme.size(), plugin.size()));
  struct Transport {
    const char* name;
    InterfaceKind kind;
    const char* table;
  };
  constexpr Transport kTransports[] = {{"IB", InterfaceKind::kNet, "ncclNetIb"},
                                       {"Socket", InterfaceKind::kNet, "ncclNetSocket"},
                                       {"GIN", InterfaceKind::kGin, "ncclGinIbProxy"}};
  const auto* const found = std::find_if(std::begin(kTransports), std::end(kTransports), [&](const Transport& one) {
    return ::strcasecmp(transport.c_str(), one.name) == 0;
  });
  if (found == std::end(kTransports))
    throw LoadError(fmt::format("{}: no such built-in transport: it is nccl:IB, nccl:Socket or nccl:GIN", plugin));
  NcclLibrary nccl(plugin);
  if (nccl.version() / 100 != kNcclOfTransports)
    throw LoadError(fmt::format(
        "{}: {} is NCCL {}, and plugfest knows NVIDIA's transports only in 2.28: set NCCL_LIBRARY to a library "
        "of that release",
        plugin, nccl.path(), nccl.version_text()));
  const int api = find_release("2.28.9")->of(found->kind).newest;
  void* const table = nccl.find(found->table, api_layout(found->kind, api).table_size);
  if (std::string_view(found->name) == "Socket" &&
      !redirect(nccl.find("cudaGetDevice"), reinterpret_cast<const void*>(&device_zero)))
    throw LoadError(fmt::format("{}: cudaGetDevice cannot be redirected: {}", plugin, std::strerror(errno)));
  const std::string path = nccl.path();
  const int version = nccl.version();
  return {.library = nccl.release(),
          .table = table,
          .kind = found->kind,
          .api = api,
          .path = path,
          .nccl_version = version};
}

bool redirect(void* function, const void* target) {
  if constexpr (kJump.empty()) {
    errno = ENOSYS;
    return false;
  } else {
    constexpr std::size_t kSize = kJump.size() + sizeof target;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    const std::uintptr_t begin = address / page * page;
    const std::size_t length = address + kSize - begin;
    void* const pages = reinterpret_cast<void*>(begin);
    // Some systems forbid pages that are writable and executable at once.
    if (::mprotect(pages, length, PROT_READ | PROT_WRITE) != 0) return false;
    auto* const bytes = static_cast<unsigned char*>(function);
    std::memcpy(bytes, kJump.data(), kJump.size());
    std::memcpy(bytes + kJump.size(), &target, sizeof target);
    __builtin___clear_cache(reinterpret_cast<char*>(bytes), reinterpret_cast<char*>(bytes) + kSize);
    return ::mprotect(pages, length, PROT_READ | PROT_EXEC) == 0;
  }
}

}  // namespace plugfest::plugin
