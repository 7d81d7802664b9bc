// The library of all mutants: exports net v10 and v12, and applies the mutation that its file name selects.
//
// libnccl-net-sizes_never_written.so is a symbolic link to it and applies MUTANT(sizes_never_written, …).
// The base plugin is the value of PLUGFEST_MUTANT_BASE (a file, nccl:Socket), otherwise libnccl-net-mesh.so in the
// parent folder. If the base plugin is also a library of this source, it uses another variable.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "conformance/mutants/mutant.h"
#include "harness/abi/downgrade.h"
#include "harness/plugin/library.h"

#ifndef PLUGFEST_BASE_VARIABLE
#define PLUGFEST_BASE_VARIABLE "PLUGFEST_MUTANT_BASE"
#endif
#define PLUGFEST_EXPORT extern "C" __attribute__((visibility("default")))

PLUGFEST_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
PLUGFEST_EXPORT plugfest::abi::v10::Net ncclNetPlugin_v10;

// The list of mutants, for load_mutants().
PLUGFEST_EXPORT const std::vector<plugfest::mutants::Mutant>* plugfest_mutants() {
  return &plugfest::mutants::mutants();
}

namespace plugfest::mutants {
namespace {

std::string base_path() {
  const char* const given = std::getenv(PLUGFEST_BASE_VARIABLE);
  return given != nullptr ? given : own_folder() + "../libnccl-net-mesh.so";
}

extern const abi::newest::Net kNewest;

// The base plugin, its functions, and the mutated functions. Lives until the process ends.
struct Shim {
  std::unique_ptr<plugin::Library> plugin;
  Net good;
  Net net;
};

// Null, with a line on stderr, when there is no such mutation or no base plugin.
Shim* make_shim() {
  const Mutant* const mutant = selected_mutant();
  if (mutant == nullptr) return nullptr;
  std::unique_ptr<plugin::Library> library;
  try {
    library = std::make_unique<plugin::Library>(base_path());
  } catch (const plugin::LoadError& error) {
    std::fprintf(stderr, "mutant: the base plugin: %s\n", error.what());
    return nullptr;
  }
  auto* const shim = new Shim{std::move(library), {}, {}};
  shim->good = forward_to(shim->plugin->net());
  shim->net = shim->good;
  shim->net.table = &ncclNetPlugin_v12;
  ncclNetPlugin_v12 = kNewest;
  mutant->mutate(shim->net, shim->good);
  return shim;
}

// Created by the first call of init; null when that failed.
Shim* shim() {
  static Shim* const instance = make_shim();
  return instance;
}
Net& net() { return shim()->net; }

Result init(void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
            abi::ProfilerCallback profiler) {
  if (shim() == nullptr) return Result::kSystemError;
  return net().init({context, comm_id, config, logger, profiler});
}
Result devices(int* count) { return net().devices(count); }
Result get_properties(int device, Properties* properties) { return net().get_properties({device, properties}); }

Result listen(void* context, int device, void* handle, void** comm) {
  return net().listen({context, device, handle, comm});
}
Result connect(void* context, int device, void* handle, void** comm, abi::DeviceHandle** device_handle) {
  net().before_device_handle(device_handle);
  return net().connect({context, device, handle, comm});
}
Result accept(void* listener, void** comm, abi::DeviceHandle** device_handle) {
  net().before_device_handle(device_handle);
  return net().accept({listener, comm});
}
Result reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
  return net().reg_mr({comm, data, size, type, mhandle});
}
Result dereg_mr(void* comm, void* mhandle) { return net().dereg_mr({comm, mhandle}); }
Result isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
  return net().isend({comm, data, size, tag, mhandle, request, phandle});
}
Result irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
             void** request) {
  return net().irecv({comm, n, data, sizes, tags, mhandles, request, phandles});
}
Result iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) {
  return net().iflush({comm, n, data, sizes, mhandles, request});
}
Result test(void* request, int* done, int* sizes) { return net().test({request, done, sizes}); }
Result close_send(void* comm) { return net().close_send(comm); }
Result close_recv(void* comm) { return net().close_recv(comm); }
Result close_listen(void* comm) { return net().close_listen(comm); }
Result irecv_consumed(void* comm, int n, void* request) { return net().irecv_consumed({comm, n, request}); }
Result finalize(void* context) { return shim() == nullptr ? Result::kSuccess : net().finalize(context); }

constexpr abi::newest::Net kNewest = {
    .name = "Mutant",
    .init = init,
    .devices = devices,
    .getProperties = get_properties,
    .listen = listen,
    .connect = connect,
    .accept = accept,
    .regMr = reg_mr,
    .regMrDmaBuf = nullptr,
    .deregMr = dereg_mr,
    .isend = isend,
    .irecv = irecv,
    .iflush = iflush,
    .test = test,
    .closeSend = close_send,
    .closeRecv = close_recv,
    .closeListen = close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = irecv_consumed,
    .makeVDevice = nullptr,
    .finalize = finalize,
    .setNetAttr = nullptr,
};

// The table before init. In the variant fills_table_in_init, it has no other function.
abi::newest::Net table_at_load() {
  if (own_name() != "fills_table_in_init") return kNewest;
  abi::newest::Net table = {};
  table.name = kNewest.name;
  table.init = init;
  return table;
}

// Functions without a context argument: one context of the base plugin serves all calls.
struct WithoutContext {
  static inline void* the_context = nullptr;

  static Result init(abi::Logger logger, abi::ProfilerCallback profiler) {
    abi::newest::CommConfig config{abi::kTrafficClassUndefined};
    return kNewest.init(&the_context, 0, &config, logger, profiler);
  }
  static void* context() { return the_context; }
  static Result connect(int device, abi::newest::CommConfig*, void* handle, void** comm,
                        abi::DeviceHandle** device_handle) {
    return kNewest.connect(the_context, device, handle, comm, device_handle);
  }
};

}  // namespace
}  // namespace plugfest::mutants

plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::table_at_load();
plugfest::abi::v10::Net ncclNetPlugin_v10 =
    plugfest::abi::Downgrade<plugfest::mutants::kNewest,
                             plugfest::mutants::WithoutContext>::table<plugfest::abi::v10::Net>();
