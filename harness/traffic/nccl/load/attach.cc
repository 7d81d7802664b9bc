// For LD_PRELOAD: puts the stand-ins under a program that knows nothing of them, before its main().
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <map>
#include <string>

#include "harness/plugin/elf_file.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"
#include "harness/traffic/nccl/cuda/refuse.h"
#include "harness/traffic/nccl/load/api.h"
#include "harness/traffic/nccl/load/redirect_runtime.h"

namespace plugfest::nccl {
namespace {

/// Redirects a CUDA runtime that is linked into the program itself, if there is one.
void redirect_program() {
  std::map<std::string, void*> functions, of_modules;
  try {
    const plugin::ElfFile program("/proc/self/exe", plugin::ElfFile::Kinds::kProgramsToo);
    const auto base = reinterpret_cast<const link_map*>(::dlopen(nullptr, RTLD_NOW))->l_addr;
    for (const plugin::ElfSymbol& symbol : program.static_symbols("cuda")) {
      if (!symbol.defined || symbol.type != STT_FUNC) continue;
      void* const address = reinterpret_cast<void*>(base + symbol.value);
      if (symbol.name.starts_with("cuda")) functions[symbol.name] = address;
      if (symbol.name.starts_with("__cuda")) of_modules[symbol.name] = address;
    }
  } catch (const plugin::ElfError&) {
    return;  // a file that cannot be read: cuGetExportTable ends the process if it has a runtime
  }
  // A program may have functions of its own whose names begin with "cuda".
  if (!functions.contains("cudaMalloc") || !functions.contains("cudaStreamSynchronize")) return;
  redirect_runtime(functions);
  // What the code that nvcc generates calls; nvcc also generates functions with such names.
  for (const auto& [name, function] : of_modules)
    if (const void* const target = ::dlsym(RTLD_DEFAULT, name.c_str()); target != nullptr)
      plugin::redirect(function, target);
}

__attribute__((constructor)) void attach() {
  if (std::getenv("PLUGFEST_NCCL_ATTACH") == nullptr) return;
  try {
    redirect_program();
    open_nccl();
  } catch (const plugin::LoadError& error) {
    refuse(error.what());
  }
}

}  // namespace
}  // namespace plugfest::nccl
