// The library that is every mutant: net v10 and v12 in front of a good plugin, with the mutation that its file name
// tells.
//
// libnccl-net-sizes_never_written.so is a link to this one library and applies MUTANT(sizes_never_written, …).
// The good plugin is what PLUGFEST_MUTANT_BASE names (a file, nccl:Socket), else libnccl-net-mesh.so in the folder
// above.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "conformance/mutants/mutant.h"
#include "harness/abi/net_v10.h"
#include "harness/abi/net_v12.h"
#include "harness/plugin/library.h"

#define PLUGFEST_EXPORT extern "C" __attribute__((visibility("default")))

PLUGFEST_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
PLUGFEST_EXPORT plugfest::abi::v10::Net ncclNetPlugin_v10;

namespace plugfest::mutants {
namespace {

/// The file this code was loaded from, by the name it was asked for.
std::string own_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&own_path), &info);
  return info.dli_fname != nullptr ? info.dli_fname : "";
}

/// "x" of ".../libnccl-net-x.so".
std::string mutant_name(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kPrefix = "libnccl-net-", kSuffix = ".so";
  if (file.size() <= kPrefix.size() + kSuffix.size()) return {};
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

std::string base_path(const std::string& own) {
  if (const char* given = std::getenv("PLUGFEST_MUTANT_BASE")) return given;
  return own.substr(0, own.rfind('/') + 1) + "../libnccl-net-mesh.so";
}

/// The good plugin and the mutation in front of it; lives as long as the process, like the library below it.
struct Shim {
  std::unique_ptr<plugin::Library> plugin;
  Net good;
  Net net;
};

/// Null with a line on stderr when the mutant cannot be what its name says.
Shim* make_shim() {
  const std::string own = own_path();
  const Mutant* mutant = find_mutant(mutant_name(own));
  if (mutant == nullptr) {
    std::fprintf(stderr, "mutant: %s: no mutant of that name\n", own.c_str());
    return nullptr;
  }
  std::unique_ptr<plugin::Library> library;
  try {
    library = std::make_unique<plugin::Library>(base_path(own));
  } catch (const plugin::LoadError& error) {
    std::fprintf(stderr, "mutant: the good plugin: %s\n", error.what());
    return nullptr;
  }
  auto* const shim = new Shim{std::move(library), {}, {}};
  shim->good = forward_to(shim->plugin->net());
  shim->net = shim->good;
  shim->net.table = &ncclNetPlugin_v12;
  mutant->mutate(shim->net, shim->good);
  return shim;
}

/// The shim, made at the first call of init. Null: it cannot be made.
Shim* shim() {
  static Shim* const instance = make_shim();
  return instance;
}
Net& net() { return shim()->net; }

Result init_v12(void** context, std::uint64_t comm_id, abi::v12::CommConfig* config, abi::Logger logger,
                abi::ProfilerCallback profiler) {
  if (shim() == nullptr) return Result::kSystemError;
  return net().init(context, comm_id, config, logger, profiler);
}
/// v10 knows no contexts; the good plugin has one for all.
void* context_v10 = nullptr;
Result init_v10(abi::Logger logger, abi::ProfilerCallback profiler) {
  abi::v12::CommConfig config{abi::kTrafficClassUndefined};
  return init_v12(&context_v10, 0, &config, logger, profiler);
}

Result devices(int* count) { return net().devices(count); }
Result get_properties_v12(int device, Properties* properties) { return net().get_properties(device, properties); }
Result get_properties_v10(int device, abi::v10::Properties* properties) {
  Properties newest{};
  const Result result = net().get_properties(device, &newest);
  if (result != Result::kSuccess) return result;
  // The members before vProps lie alike.
  std::memcpy(static_cast<void*>(properties), &newest, offsetof(Properties, vProps));
  properties->vProps.ndevs = newest.vProps.ndevs;
  for (int i = 0; i < abi::kMaxVDeviceMembersV9; ++i) properties->vProps.devs[i] = newest.vProps.devs[i];
  properties->maxP2pBytes = newest.maxP2pBytes;
  properties->maxCollBytes = newest.maxCollBytes;
  return result;
}

Result listen_v12(void* context, int device, void* handle, void** comm) {
  return net().listen(context, device, handle, comm);
}
Result listen_v10(int device, void* handle, void** comm) { return listen_v12(context_v10, device, handle, comm); }
Result connect_v12(void* context, int device, void* handle, void** comm, abi::DeviceHandle** device_handle) {
  net().see_device_handle(device_handle);
  return net().connect(context, device, handle, comm);
}
Result connect_v10(int device, abi::v10::CommConfig*, void* handle, void** comm, abi::DeviceHandle** device_handle) {
  return connect_v12(context_v10, device, handle, comm, device_handle);
}
Result accept(void* listen_comm, void** comm, abi::DeviceHandle** device_handle) {
  net().see_device_handle(device_handle);
  return net().accept(listen_comm, comm);
}
Result reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
  return net().reg_mr(comm, data, size, type, mhandle);
}
Result dereg_mr(void* comm, void* mhandle) { return net().dereg_mr(comm, mhandle); }
Result isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void*, void** request) {
  return net().isend(comm, data, size, tag, mhandle, request);
}
Result irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void**, void** request) {
  return net().irecv(comm, n, data, sizes, tags, mhandles, request);
}
Result iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) {
  return net().iflush(comm, n, data, sizes, mhandles, request);
}
Result test(void* request, int* done, int* sizes) { return net().test(request, done, sizes); }
Result close_send(void* comm) { return net().close_send(comm); }
Result close_recv(void* comm) { return net().close_recv(comm); }
Result close_listen(void* comm) { return net().close_listen(comm); }
Result irecv_consumed(void* comm, int n, void* request) { return net().irecv_consumed(comm, n, request); }
Result finalize(void* context) { return shim() == nullptr ? Result::kSuccess : net().finalize(context); }

}  // namespace
}  // namespace plugfest::mutants

namespace mutants = plugfest::mutants;

plugfest::abi::v12::Net ncclNetPlugin_v12 = {
    .name = "Mutant",
    .init = mutants::init_v12,
    .devices = mutants::devices,
    .getProperties = mutants::get_properties_v12,
    .listen = mutants::listen_v12,
    .connect = mutants::connect_v12,
    .accept = mutants::accept,
    .regMr = mutants::reg_mr,
    .regMrDmaBuf = nullptr,
    .deregMr = mutants::dereg_mr,
    .isend = mutants::isend,
    .irecv = mutants::irecv,
    .iflush = mutants::iflush,
    .test = mutants::test,
    .closeSend = mutants::close_send,
    .closeRecv = mutants::close_recv,
    .closeListen = mutants::close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = mutants::irecv_consumed,
    .makeVDevice = nullptr,
    .finalize = mutants::finalize,
    .setNetAttr = nullptr,
};

plugfest::abi::v10::Net ncclNetPlugin_v10 = {
    .name = "Mutant",
    .init = mutants::init_v10,
    .devices = mutants::devices,
    .getProperties = mutants::get_properties_v10,
    .listen = mutants::listen_v10,
    .connect = mutants::connect_v10,
    .accept = mutants::accept,
    .regMr = mutants::reg_mr,
    .regMrDmaBuf = nullptr,
    .deregMr = mutants::dereg_mr,
    .isend = mutants::isend,
    .irecv = mutants::irecv,
    .iflush = mutants::iflush,
    .test = mutants::test,
    .closeSend = mutants::close_send,
    .closeRecv = mutants::close_recv,
    .closeListen = mutants::close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = mutants::irecv_consumed,
    .makeVDevice = nullptr,
};
