// Variants that offer less than the base plugin, or report it in another way.
#include <dlfcn.h>

#include <cstring>
#include <memory>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// maxRecvs is 1.
VARIANT(one_buffer_per_receive) {
  net.get_properties = one_buffer_per_receive(good);
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    if (n != 1) return Result::kInvalidArgument;
    return good.irecv(comm, n, data, sizes, tags, mhandles, request);
  };
}

// Only host memory, and no iflush.
VARIANT(no_gpu_direct) {
  net.table->iflush = nullptr;
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result == Result::kSuccess) properties->ptrSupport = abi::kPointerHost;
    return result;
  };
}

// init needs a GPU.
MUTANT(refuses_without_gpu, breaks().with_emulated_gpu()) {
  net.init = [&good](void** context, auto... arguments) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return Result::kSystemError;
    const auto start = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int gpus = 0;
    if (start(0) != 0 || count(&gpus) != 0 || gpus == 0) return Result::kSystemError;
    return good.init(context, arguments...);
  };
}

// Each getProperties returns new copies of the strings.
VARIANT(copies_strings_on_each_call) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result != Result::kSuccess) return result;
    for (const char** text : {&properties->name, &properties->pciPath}) {
      if (*text != nullptr) *text = strdup(*text);
    }
    return result;
  };
}

// getProperties leaves the fields as they are that NCCL does not read from a net table.
VARIANT(writes_only_fields_that_nccl_reads) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Properties before = *properties;
    const Result result = good.get_properties(device, properties);
    properties->regIsGlobal = before.regIsGlobal;
    properties->netDeviceVersion = before.netDeviceVersion;
    properties->maxCollBytes = before.maxCollBytes;
    properties->maxMultiRequestSize = before.maxMultiRequestSize;
    return result;
  };
}

// test writes the sizes of receives only.
VARIANT(no_sizes_of_sends) {
  auto sends = std::make_shared<PointerMap<bool>>();
  net.isend = [&good, sends](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) sends->put(*request, true);
    return result;
  };
  net.test = [&good, sends](void* request, int* done, int* sizes) {
    const bool sent = sends->find(request).has_value();
    const Result result = good.test(request, done, sent ? nullptr : sizes);
    if (sent && (result != Result::kSuccess || *done != 0)) sends->erase(request);
    return result;
  };
}

// test refuses a receive without an array for its sizes.
VARIANT(sizes_required_for_receives) {
  auto receives = std::make_shared<PointerMap<bool>>();
  net.irecv = [&good, receives](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) receives->put(*request, true);
    return result;
  };
  net.test = [&good, receives](void* request, int* done, int* sizes) {
    if (sizes == nullptr && receives->find(request)) return Result::kInvalidArgument;
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done != 0) receives->erase(request);
    return result;
  };
}

// The devices are of type UNPACK: accept needs the device handle that NCCL allocates, and fills it in.
VARIANT(unpack_device) {
  thread_local bool has_handle = false;
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    properties->netDeviceType = abi::kDeviceUnpack;
    properties->netDeviceVersion = abi::kDeviceUnpackVersion;
    return result;
  };
  net.before_device_handle = [](abi::DeviceHandle** device_handle) {
    has_handle = device_handle != nullptr && *device_handle != nullptr &&
                 (*device_handle)->netDeviceType == abi::kDeviceUnpack && (*device_handle)->handle == nullptr;
    if (!has_handle) return;
    static char queue[64];
    (*device_handle)->handle = queue;
    (*device_handle)->size = sizeof queue;
  };
  net.accept = [&good](void* listen_comm, void** comm) {
    return has_handle ? good.accept(listen_comm, comm) : Result::kInvalidArgument;
  };
}

// Reports the loss of a peer as ncclSystemError.
VARIANT(remote_error_as_system_error) {
  auto system_error = [](const auto& function) {
    return [&function](auto... arguments) {
      const Result result = function(arguments...);
      return result == Result::kRemoteError ? Result::kSystemError : result;
    };
  };
  net.connect = system_error(good.connect);
  net.accept = system_error(good.accept);
  net.isend = system_error(good.isend);
  net.irecv = system_error(good.irecv);
  net.test = system_error(good.test);
}

}  // namespace plugfest::mutants
