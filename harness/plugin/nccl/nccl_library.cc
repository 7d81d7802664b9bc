#include "harness/plugin/nccl/nccl_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include "harness/plugin/elf/inspect.h"
#include "harness/plugin/nccl/nccl_builtin.h"

namespace plugfest::plugin {

void NcclLibrary::Close::operator()(void* handle) const { ::dlclose(handle); }

NcclLibrary::NcclLibrary(const std::string& purpose) : purpose_(purpose), path_(find_nccl()) {
  if (path_.empty())
    throw LoadError(fmt::format("{}: no libnccl.so.2: set NCCL_LIBRARY to the library's path, or run\n    {}", purpose_,
                                kFetchNccl));
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
  for (const ElfSymbol& symbol : file_->static_symbols(prefix)) {
    if (symbol.defined && symbol.type == STT_FUNC && symbol.name.starts_with(prefix))
      found[symbol.name] = reinterpret_cast<void*>(load_address_ + symbol.value);
  }
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

}  // namespace plugfest::plugin
