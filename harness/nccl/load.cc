#include "harness/nccl/load.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <unordered_map>

#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/device/kernel.h"
#include "harness/nccl/device/layout_2_28.h"
#include "harness/nccl/profiler_calls.h"
#include "harness/plugin/elf_file.h"
#include "harness/plugin/imports.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"

namespace plugfest::nccl {

namespace {

constexpr const char* kPurpose = "nccl";

void prepare_kernels(const plugin::NcclLibrary& library) {
  const auto* const rows =
      static_cast<const int*>(library.find("ncclDevFuncRowToId", (device::FunctionTable::kRows + 1) * sizeof(int)));
  auto* const functions = new device::FunctionTable({rows, device::FunctionTable::kRows});  // used until the end
  auto* const kernels = new std::set<const void*>;
  const int count = *static_cast<const int*>(library.find("ncclDevKernelCount"));
  const auto* const list = static_cast<void* const*>(library.find("ncclDevKernelList"));
  for (int i = 0; i < count; ++i) kernels->insert(list[i]);
  cuda::set_kernels([=](const void* function, std::span<const std::byte> arguments) {
    if (!kernels->contains(function)) {
      Dl_info info{};
      const bool known = ::dladdr(function, &info) != 0 && info.dli_sname != nullptr;
      refuse(fmt::format("kernel {}: no stand-in", known ? info.dli_sname : "without name"));
    }
    device::run_kernel(*functions, arguments);
  });
}

// Functions that return a table, or a copy of it whose calls are observed.
using Observe = void* (*)(const char* symbol, void* table);
std::array<Observe, 2> g_observers = {};

// Replaces dlsym in NCCL.
void* find_observed(void* library, const char* symbol) {
  void* found = ::dlsym(library, symbol);
  for (const Observe observe : g_observers)
    if (found != nullptr && observe != nullptr) found = observe(symbol, found);
  return found;
}

Observe recorder_at(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw plugin::LoadError(fmt::format("{}: {}", kPurpose, ::dlerror()));
  void* const function = ::dlsym(library, "plugfest_record_calls");
  if (function == nullptr) throw plugin::LoadError(fmt::format("{}: {}: no plugfest_record_calls", kPurpose, path));
  return reinterpret_cast<Observe>(function);
}

// Observes the calls of NCCL to its plugins, as the environment requests.
void observe_plugins(void* nccl) {
  if (const char* const recorder = std::getenv(kRecorderVariable)) g_observers[0] = recorder_at(recorder);
  if (std::getenv(kProfilerCallsVariable) != nullptr) g_observers[1] = count_profiler_calls;
  if (g_observers == std::array<Observe, 2>{}) return;
  if (!plugin::redirect_import(nccl, "dlsym", reinterpret_cast<const void*>(&find_observed)))
    throw plugin::LoadError(fmt::format("{}: dlsym cannot be redirected: {}", kPurpose, std::strerror(errno)));
}

template <typename Function>
void look_up(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(handle, name));
  if (function == nullptr) throw plugin::LoadError(fmt::format("{}: libnccl.so.2 has no {}", kPurpose, name));
}

}  // namespace

const Api& open_nccl() {
  static Api api;
  plugin::NcclLibrary library(kPurpose);
  if (library.version() != device::v2_28::kVersion)
    throw plugin::LoadError(fmt::format(
        "{}: {} is NCCL {}, and plugfest emulates only the kernels of {}: set NCCL_LIBRARY to that release, or run\n"
        "    {}",
        kPurpose, library.path(), library.version_text(), plugin::nccl_version_text(device::v2_28::kVersion),
        plugin::kFetchNccl));
  library.find("cudaMalloc");  // a stripped library ends here
  redirect_runtime(library.functions("cuda"));
  prepare_kernels(library);
  // NVIDIA's runtime loads the driver. Plugins use it only if it is in the process.
  if (cuda::has_virtual_memory()) ::dlopen("libcuda.so.1", RTLD_LAZY);
  void* const handle = library.release();
  observe_plugins(handle);
#define PLUGFEST_LOOK_UP(result, name, ...) look_up(handle, "nccl" #name, api.name);
  PLUGFEST_NCCL_FUNCTIONS(PLUGFEST_LOOK_UP)
#undef PLUGFEST_LOOK_UP
  return api;
}

void redirect_runtime(const std::map<std::string, void*>& functions) {
  std::unordered_map<std::string, const void*> targets;
  for (const cuda::StandIn& stand_in : cuda::stand_ins()) targets[stand_in.name] = stand_in.function;
  for (const auto& [name, function] : functions) {
    const auto found = targets.find(name);
    if (plugin::redirect(function, found == targets.end() ? make_trap(name) : found->second)) continue;
    throw plugin::LoadError(fmt::format("nccl: {} cannot be redirected: {}", name, std::strerror(errno)));
  }
}

namespace {

// Redirects a CUDA runtime that is linked into the program itself, if there is one.
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
  // Code that nvcc generates calls these functions; nvcc also generates functions with such names.
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
