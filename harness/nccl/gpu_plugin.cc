// The mesh plugin with NCCL_PTR_CUDA: NCCL gives it device memory, which the user-space NIC accesses as one with
// GPUDirect RDMA. With COPIES_WITH_CPU, isend first reads the memory with the CPU, which a GPU's memory does not allow.
#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "harness/abi/net.h"
#include "test_paths.h"

extern "C" __attribute__((visibility("default"))) plugfest::abi::v11::Net ncclNetPlugin_v11;

namespace {

using plugfest::abi::Result;
namespace v11 = plugfest::abi::v11;

constexpr int kHostAndCuda = 3, kHost = 1;

const v11::Net& mesh() {
  static const auto* const table =
      static_cast<const v11::Net*>(::dlsym(::dlopen(PLUGFEST_MESH, RTLD_NOW | RTLD_LOCAL), "ncclNetPlugin_v11"));
  return *table;
}

Result init(void** context, std::uint64_t id, v11::CommConfig* config, plugfest::abi::Logger logger,
            plugfest::abi::ProfilerCallback profiler) {
  const v11::Net own = ncclNetPlugin_v11;
  ncclNetPlugin_v11 = mesh();
  ncclNetPlugin_v11.name = own.name;
  ncclNetPlugin_v11.init = own.init;
  ncclNetPlugin_v11.getProperties = own.getProperties;
  ncclNetPlugin_v11.regMr = own.regMr;
  ncclNetPlugin_v11.isend = own.isend;
  ncclNetPlugin_v11.iflush = own.iflush;
  return mesh().init(context, id, config, logger, profiler);
}

Result get_properties(int device, v11::Properties* properties) {
  const Result result = mesh().getProperties(device, properties);
  properties->ptrSupport = kHostAndCuda;
  return result;
}

Result reg_mr(void* comm, void* data, std::size_t size, int, void** memory) {
  return mesh().regMr(comm, data, size, kHost, memory);
}

// Returns the first byte, so that the call of memcpy is not the last.
[[gnu::noinline]] char copy_to_bounce_buffer(const void* data, std::size_t size) {
  static std::vector<char> buffer;
  buffer.resize(size + 1);
  std::memcpy(buffer.data(), data, size);
  return buffer[0];
}

Result isend(void* comm, void* data, std::size_t size, int tag, void* memory, void* handle, void** request) {
#ifdef COPIES_WITH_CPU
  [[maybe_unused]] static volatile char first;
  first = copy_to_bounce_buffer(data, size);
#else
  static_cast<void>(copy_to_bounce_buffer);
#endif
  return mesh().isend(comm, data, size, tag, memory, handle, request);
}

// Nothing to flush: the processor that writes the data also completes the receive.
Result iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return Result::kSuccess;
}

// init adds the other functions of the mesh plugin.
constexpr v11::Net own_functions() {
  v11::Net net = {};
  net.name = "MeshOnGpu";
  net.init = init;
  net.getProperties = get_properties;
  net.regMr = reg_mr;
  net.isend = isend;
  net.iflush = iflush;
  return net;
}

}  // namespace

v11::Net ncclNetPlugin_v11 = own_functions();
