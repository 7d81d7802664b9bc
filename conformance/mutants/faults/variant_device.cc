// Variants that offer less than the base plugin, or report it in another way, and one that records calls.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/profiler.h"

namespace plugfest::mutants {

// maxRecvs is 1.
VARIANT(one_buffer_per_receive) { accept_one_buffer_per_receive(net); }

// init opens an RDMA device, which stays open until the library is unloaded, as in libfabric.
VARIANT(keeps_a_device_open) {
  struct OpenDevice {
    OpenDevice() {
      void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
      if (verbs == nullptr) return;
      const auto list = reinterpret_cast<void** (*)(int*)>(dlsym(verbs, "ibv_get_device_list"))(nullptr);
      if (list == nullptr) return;
      if (list[0] != nullptr) context = reinterpret_cast<void* (*)(void*)>(dlsym(verbs, "ibv_open_device"))(list[0]);
      reinterpret_cast<void (*)(void**)>(dlsym(verbs, "ibv_free_device_list"))(list);
      close = reinterpret_cast<int (*)(void*)>(dlsym(verbs, "ibv_close_device"));
    }
    ~OpenDevice() {
      if (context != nullptr) close(context);
    }
    void* context = nullptr;
    int (*close)(void*) = nullptr;
  };
  before(net.init, [](Init) { static const OpenDevice device; });
}

// Supports only host memory, and iflush is NULL.
VARIANT(no_gpu_direct) {
  net.table->iflush = nullptr;
  set_property(net, &Properties::ptrSupport, abi::kPointerHost);
}

// Supports only host memory on a host with a GPU, and test never writes sizes.
MUTANT(no_sizes_of_host_memory,
       breaks().also("TH-02", "SK-01", "TS-04", "XF-09", "XF-26", "XF-41").with_emulated_gpu()) {
  net.table->iflush = nullptr;
  set_property(net, &Properties::ptrSupport, abi::kPointerHost);
  before(net.test, [](Test& test) { test.sizes = nullptr; });
}

// Supports only host memory on a host with a GPU, and thus gets only NCCL's own buffers: regMr fails while another
// thread uses the comm, and messages have up to 4 MiB.
MUTANT(own_buffers_only, breaks().also("MR-14", "TH-03", "XF-01", "XF-39").with_emulated_gpu()) {
  net.table->iflush = nullptr;
  set_property(net, &Properties::ptrSupport, abi::kPointerHost);
  accept_one_buffer_per_receive(net);
  constexpr std::size_t kMost = 4 << 20;
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.reg_mr, Result::kInternalError,
         [&](Register call) { return in_flight.used_by_another_thread(call.comm); });
  refuse(net.isend, Result::kInvalidArgument, [](Send send) { return send.size > kMost; });
  refuse(net.irecv, Result::kInvalidArgument, [](Receive receive) { return *receive.sizes > kMost; });
  for (auto* const close : {&net.close_send, &net.close_recv})
    before(*close, [&](void* comm) { in_flight.forget(comm); });
}

// init requires a GPU.
MUTANT(refuses_without_gpu, breaks().with_emulated_gpu()) {
  refuse(net.init, Result::kSystemError, [](Init) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return true;
    const auto start = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int gpus = 0;
    return start(0) != 0 || count(&gpus) != 0 || gpus == 0;
  });
}

// The function table has only a name and init until init is called. See table_at_load() in shim.cc.
VARIANT(fills_table_in_init) {}

// Reports sends to the profiler without a NULL check: NCCL passes a profiler to each init if it passes handles to
// isend.
MUTANT(profiler_needs_no_check, breaks().also("PF-10")) {
  static std::atomic<abi::ProfilerCallback> profiler{nullptr};
  before(net.init, [](Init init) { profiler = init.profiler; });
  before(net.isend, [](Send send) {
    if (send.phandle == nullptr) return;
    void* event = nullptr;
    abi::ProfilerQueuePairEvent data = {};
    for (const int type : {abi::kProfilerNetStart, abi::kProfilerNetStop})
      profiler.load()(&event, type, send.phandle, abi::kProfilerQueuePairId, &data);
  });
}

// Each getProperties returns new copies of the strings.
VARIANT(copies_strings_on_each_call) {
  change_properties(net, [](Properties& properties) {
    for (const char** text : {&properties.name, &properties.pciPath})
      if (*text != nullptr) *text = strdup(*text);
  });
}

// getProperties does not write the fields that NCCL does not read from a net table.
MUTANT(writes_only_fields_that_nccl_reads, breaks().also("DP-04")) {
  net.get_properties = [&good](GetProperties call) {
    const Properties before = *call.properties;
    const Result result = good.get_properties(call);
    call.properties->regIsGlobal = before.regIsGlobal;
    call.properties->netDeviceVersion = before.netDeviceVersion;
    call.properties->maxCollBytes = before.maxCollBytes;
    call.properties->maxMultiRequestSize = before.maxMultiRequestSize;
    return result;
  };
}

// test writes the sizes of receives only.
VARIANT(no_sizes_of_sends) {
  auto& sends = kept<PointerSet>();
  on_success(net.isend, [&](Send send) { sends.insert(*send.request); });
  on_end(net, [&](Test test) { sends.erase(test.request); });
  before(net.test, [&](Test& test) {
    if (sends.contains(test.request)) test.sizes = nullptr;
  });
}

// test refuses a send or a receive without an array for its sizes.
MUTANT(sizes_required, breaks().also("TS-03")) {
  auto& messages = kept<PointerSet>();
  on_success(net.isend, [&](Send send) { messages.insert(*send.request); });
  on_success(net.irecv, [&](Receive receive) { messages.insert(*receive.request); });
  on_end(net, [&](Test test) { messages.erase(test.request); });
  refuse(net.test, Result::kInvalidArgument,
         [&](Test test) { return test.sizes == nullptr && messages.contains(test.request); });
}

namespace {

// The devices are of type UNPACK: accept needs the device handle that NCCL allocates, and fills it in.
void make_unpack_device(Net& net) {
  static thread_local bool has_handle = false;
  change_properties(net, [](Properties& properties) {
    properties.netDeviceType = abi::kDeviceUnpack;
    properties.netDeviceVersion = abi::kDeviceUnpackVersion;
  });
  net.before_device_handle = [](abi::DeviceHandle** device_handle) {
    has_handle = device_handle != nullptr && *device_handle != nullptr &&
                 (*device_handle)->netDeviceType == abi::kDeviceUnpack && (*device_handle)->handle == nullptr;
    if (!has_handle) return;
    static char queue[64];
    (*device_handle)->handle = queue;
    (*device_handle)->size = sizeof queue;
  };
  refuse(net.accept, Result::kInvalidArgument, [](Accept) { return !has_handle; });
  net.table->getDeviceMr = [](void*, void* mhandle, void** device_mhandle) {
    *device_mhandle = mhandle;
    return Result::kSuccess;
  };
}

}  // namespace

VARIANT(unpack_device) { make_unpack_device(net); }

// getDeviceMr stores nothing.
MUTANT(device_mhandle_unwritten, breaks("FL-08")) {
  make_unpack_device(net);
  net.table->getDeviceMr = [](void*, void*, void**) { return Result::kSuccess; };
}

// Reports the loss of a peer as ncclSystemError.
VARIANT(remote_error_as_system_error) {
  const auto system_error = [](const auto&, Result result) {
    return result == Result::kRemoteError ? Result::kSystemError : result;
  };
  after(net.connect, system_error);
  after(net.accept, system_error);
  after(net.isend, system_error);
  after(net.irecv, system_error);
  after(net.test, system_error);
}

namespace {

// A file of this process in the folder PLUGFEST_RECORD_CALLS, with one line for each call; nothing without that
// variable.
class CallFile {
 public:
  CallFile() {
    if (const char* folder = std::getenv("PLUGFEST_RECORD_CALLS"))
      file_ = std::fopen((folder + ("/" + std::to_string(getpid()))).c_str(), "ae");
  }

  void write(const char* call, const void* comm, std::size_t size, int tag) {
    if (file_ == nullptr) return;
    const std::lock_guard lock(mutex_);
    std::fprintf(file_, "%s %p %zu %d\n", call, comm, size, tag);
    std::fflush(file_);  // the process may be killed
  }

 private:
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
};

}  // namespace

// Records connections, registrations and accepted transfers: "isend COMM SIZE TAG". A group of receives takes one line
// for each buffer.
VARIANT(records_calls) {
  auto& file = kept<CallFile>();
  on_success(net.connect, [&](Connect connect) { file.write("connect", *connect.comm, 0, 0); });
  on_success(net.accept, [&](Accept accept) { file.write("accept", *accept.comm, 0, 0); });
  before(net.reg_mr, [&](Register call) { file.write("regMr", call.comm, call.size, call.type); });
  on_success(net.isend, [&](Send send) { file.write("isend", send.comm, send.size, send.tag); });
  on_success(net.irecv, [&](Receive receive) {
    for (int i = 0; i < receive.n; ++i) file.write("irecv", receive.comm, receive.sizes[i], receive.tags[i]);
  });
}

}  // namespace plugfest::mutants
