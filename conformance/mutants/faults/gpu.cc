// Mutants of the rules about GPUs. The memory of the emulated GPU is memory of the process.
#include <dlfcn.h>

#include <algorithm>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Accepts GPU memory, which the base plugin registers as host memory, and has nothing to flush.
void accept_gpu_memory(Net& net) {
  report_cuda_memory(net);
  before(net.reg_mr, [](Register& call) {
    if (call.type == abi::kPointerCuda) call.type = abi::kPointerHost;
  });
  net.iflush = [](Flush flush) {
    *flush.request = nullptr;
    return Result::kSuccess;
  };
}

}  // namespace

// The function table has no iflush.
MUTANT(iflush_is_null, breaks("LD-08").also("FL-*", "TH-05").with_emulated_gpu()) {
  accept_gpu_memory(net);
  net.table->iflush = nullptr;
}

// regMr refuses parts of GPU memory that are not page-aligned.
MUTANT(whole_gpu_pages_only, breaks("MR-02").with_emulated_gpu()) {
  accept_gpu_memory(net);
  refuse(net.reg_mr, Result::kInvalidArgument, [](Register call) {
    return call.type == abi::kPointerCuda && reinterpret_cast<std::uintptr_t>(call.data) % 4096 != 0;
  });
}

// The last byte of a message reaches GPU memory only with the next receive, after the flush.
MUTANT(flush_before_the_last_byte, breaks("FL-01").also("FL-03", "FL-04", "TH-05").with_emulated_gpu()) {
  struct Late {
    std::byte* last = nullptr;
    std::byte value{};
  };
  auto& late = kept<Late>();
  accept_gpu_memory(net);
  const auto write = [&late] {
    if (late.last != nullptr) *late.last = late.value;
    late.last = nullptr;
  };
  before(net.irecv, [write](Receive) { write(); });
  before(net.dereg_mr, [write](Deregister) { write(); });
  before(net.iflush, [&](Flush flush) {
    const int part = static_cast<int>(
        std::find_if(flush.sizes, flush.sizes + flush.n, [](int size) { return size > 0; }) - flush.sizes);
    if (part == flush.n || late.last != nullptr) return;
    late.last = static_cast<std::byte*>(flush.data[part]) + flush.sizes[part] - 1;
    late.value = *late.last;
    *late.last = ~late.value;
  });
}

// iflush fails if a part is empty.
MUTANT(flush_refuses_empty_parts, breaks("FL-03").with_emulated_gpu()) {
  accept_gpu_memory(net);
  refuse(net.iflush, Result::kInvalidArgument,
         [](Flush flush) { return std::count(flush.sizes, flush.sizes + flush.n, 0) != 0; });
}

// iflush changes the first byte of the message.
MUTANT(flush_writes, breaks("FL-01", "FL-05").also("FL-03", "FL-04", "TH-05").with_emulated_gpu()) {
  accept_gpu_memory(net);
  before(net.iflush, [](Flush flush) {
    auto* const first = static_cast<std::byte*>(flush.data[0]);
    if (flush.sizes[0] > 0) *first = ~*first;
  });
}

// isend leaves the calling thread without a CUDA context.
MUTANT(isend_drops_the_context, breaks("TH-05").with_emulated_gpu()) {
  accept_gpu_memory(net);
  before(net.isend, [](Send) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return;
    reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"))(nullptr);
    dlclose(driver);
  });
}

}  // namespace plugfest::mutants
