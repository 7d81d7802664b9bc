// Libraries whose ELF files are broken: NCCL does not find the interface, cannot load the library or reads the wrong
// struct. This source is compiled once for each, with the macro LIBRARY_<name>. The LD rules (see faults/process.cc)
// and the tests of the loader's messages (harness/plugin) use them. No rule calls their functions, which therefore
// return an error.
#include <dlfcn.h>

#include <cstddef>
#include <utility>

#include "harness/abi/net.h"

namespace {

namespace abi = plugfest::abi;

template <typename Function>
struct Refusal;
template <typename... Arguments>
struct Refusal<abi::Result (*)(Arguments...)> {
  static abi::Result call(Arguments... /*unused*/) { return abi::Result::kSystemError; }
};

// Converts to a pointer to a refusing function of any signature.
struct Refuse {
  template <typename Function>
  constexpr operator Function() const {
    return &Refusal<Function>::call;
  }
};

// A function table of any version with this name.
template <typename Net = abi::v12::Net>
[[maybe_unused]] constexpr Net refusing_net(const char* name) {
  return []<std::size_t... kSlot>(const char* first, std::index_sequence<kSlot...>) {
    return Net{first, ((void)kSlot, Refuse{})...};
  }
  (name, std::make_index_sequence<sizeof(Net) / sizeof(void*) - 1>{});
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define HIDE extern "C" __attribute__((visibility("hidden")))
// Defines a struct of net functions under the name `symbol`. `linkage`: EXPORT or HIDE.
#define NET(linkage, version, symbol, name) \
  linkage abi::version::Net symbol;         \
  abi::version::Net symbol = refusing_net<abi::version::Net>(name)

#if defined LIBRARY_hidden_symbol
// Exports nothing: the symbol has hidden visibility, as with -fvisibility=hidden.
NET(HIDE, v12, ncclNetPlugin_v12, "hidden_symbol");

#elif defined LIBRARY_local_symbol
// Exports nothing: its version script (local_symbol.map) makes all symbols local.
NET(EXPORT, v12, ncclNetPlugin_v12, "local_symbol");

#elif defined LIBRARY_static_symbol
// Exports nothing: the struct is static.
[[gnu::used]] static abi::v12::Net ncclNetPlugin_v12 = refusing_net("static_symbol");

#elif defined LIBRARY_cxx_name
// Exports the struct under a mangled C++ name.
namespace vendor {
__attribute__((visibility("default"))) abi::v12::Net ncclNetPlugin_v12 = refusing_net("cxx_name");
}

#elif defined LIBRARY_function_symbol
// Exports a function that returns the struct instead of the struct.
EXPORT const abi::v12::Net* ncclNetPlugin_v12() {
  static const abi::v12::Net net = refusing_net("function_symbol");
  return &net;
}

#elif defined LIBRARY_undefined_symbol
// Uses a function of NCCL; NCCL exports no functions to plugins.
extern "C" void ncclDebugLogOfCore();
NET(EXPORT, v12, ncclNetPlugin_v12, "undefined_symbol");
EXPORT void log_something() { ncclDebugLogOfCore(); }

#elif defined LIBRARY_undefined_symbol_of_cuda
// Uses CUDA's runtime and is not linked with it.
extern "C" int cudaMalloc(void** memory, unsigned long size);
NET(EXPORT, v12, ncclNetPlugin_v12, "undefined_symbol_of_cuda");
EXPORT void allocate(void** memory) { cudaMalloc(memory, 1); }

#elif defined LIBRARY_missing_dependency
// Depends on a library that the loader does not find.
extern "C" void plugfest_absent();
NET(EXPORT, v12, ncclNetPlugin_v12, "missing_dependency");
EXPORT void use_it() { plugfest_absent(); }

#elif defined LIBRARY_absent
// The library that the loader does not find.
EXPORT void plugfest_absent() {}

#elif defined LIBRARY_old_versions
// Exports only v4 and v5, which NCCL 2.26 and later do not look up.
NET(EXPORT, v12, ncclNetPlugin_v4, "old_versions");
NET(EXPORT, v12, ncclNetPlugin_v5, "old_versions");

#elif defined LIBRARY_short_name
// Exports ncclNet_v8, a name that NCCL's documentation once used, instead of ncclNetPlugin_v8.
NET(EXPORT, v8, ncclNet_v8, "short_name");

#elif defined LIBRARY_tuner_only
// Exports a tuner and no net interface.
struct Tuner {
  const char* name;
  void* functions[3];
};
EXPORT Tuner ncclTunerPlugin_v4;
Tuner ncclTunerPlugin_v4 = {"tuner_only", {}};

#elif defined LIBRARY_wrong_size
// Exports the struct of v10 as v12: NCCL reads finalize and setNetAttr beyond its end.
NET(EXPORT, v10, ncclNetPlugin_v12, "wrong_size");

#elif defined LIBRARY_null_name
// Its name is NULL before init.
NET(EXPORT, v12, ncclNetPlugin_v12, nullptr);

#elif defined LIBRARY_some_versions
// Correct: exports v8 and v11, hides v9, and exports a GIN, for tests of the loader's choice of a version.
NET(EXPORT, v8, ncclNetPlugin_v8, "some_versions");
NET(HIDE, v9, ncclNetPlugin_v9, "some_versions");
NET(EXPORT, v11, ncclNetPlugin_v11, "some_versions");
struct Gin {
  const char* name;
  void* functions[18];
};
EXPORT Gin ncclGinPlugin_v11;
Gin ncclGinPlugin_v11 = {"some_versions", {}};

#elif defined LIBRARY_newest_version_only
// Exports only v12, which no NCCL before 2.30 looks up.
NET(EXPORT, v12, ncclNetPlugin_v12, "newest_version_only");

#elif defined LIBRARY_no_finalize_after_failed_init
// Its init fails, and its finalize is NULL.
constexpr abi::v12::Net without_finalize() {
  abi::v12::Net net = refusing_net("no_finalize_after_failed_init");
  net.finalize = nullptr;
  return net;
}
EXPORT abi::v12::Net ncclNetPlugin_v12;
abi::v12::Net ncclNetPlugin_v12 = without_finalize();

#elif defined LIBRARY_needs_driver
// Correct: needs libcuda.so.1, for tests on machines without NVIDIA's driver.
extern "C" int cuInit(unsigned flags);
NET(EXPORT, v12, ncclNetPlugin_v12, "needs_driver");
EXPORT int use_it() { return cuInit(0); }

#elif defined LIBRARY_static_runtime
// Its init starts as a CUDA runtime that is linked statically does: it opens the driver and asks it for a table.
template <typename Function>
struct RuntimeStart;
template <typename... Arguments>
struct RuntimeStart<abi::Result (*)(Arguments...)> {
  static abi::Result call(Arguments... /*unused*/) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return abi::Result::kSystemError;
    const auto get_table = reinterpret_cast<int (*)(const void**, const void*)>(dlsym(driver, "cuGetExportTable"));
    return get_table(nullptr, nullptr) == 0 ? abi::Result::kSuccess : abi::Result::kSystemError;
  }
};
constexpr abi::v12::Net with_runtime() {
  abi::v12::Net net = refusing_net("static_runtime");
  net.init = &RuntimeStart<decltype(net.init)>::call;
  return net;
}
EXPORT abi::v12::Net ncclNetPlugin_v12;
abi::v12::Net ncclNetPlugin_v12 = with_runtime();

#elif defined LIBRARY_driver
// Stands for the library of NVIDIA's driver, which the loader does not find either.
EXPORT int cuInit(unsigned) { return 0; }

#elif defined LIBRARY_tuner_pointer
// Exports a pointer to its tuner instead of the tuner.
struct Tuner {
  const char* name;
  void* functions[3];
};
static Tuner tuner = {"tuner_pointer", {}};
NET(EXPORT, v12, ncclNetPlugin_v12, "tuner_pointer");
EXPORT Tuner* ncclTunerPlugin_v4;
Tuner* ncclTunerPlugin_v4 = &tuner;

#else
#error "no such library"
#endif
