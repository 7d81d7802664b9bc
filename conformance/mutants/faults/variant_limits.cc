// Variants with limits and refusals that NCCL's core handles.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// setNetAttr returns an error, which NCCL ignores.
VARIANT(attributes_refused) {
  net.table->setNetAttr = [](void*, abi::newest::NetAttr*) { return Result::kInvalidArgument; };
}

// All devices are virtual functions of one port.
VARIANT(devices_share_a_port) {
  change_properties(net, [](Properties& properties) {
    properties.guid = 0x0c42a10300b1c2d4;
    properties.port = 1;
  });
}

// ptrSupport has a bit that NCCL does not know.
VARIANT(unknown_pointer_type_supported) {
  change_properties(net, [](Properties& properties) { properties.ptrSupport |= 0x40; });
}

// init refuses traffic classes that are no DSCP value.
VARIANT(traffic_class_limited) {
  refuse(net.init, Result::kInvalidArgument, [](Init init) { return init.config->trafficClass > 63; });
}

// connect refuses handles of its own process.
VARIANT(no_connection_to_itself) { refuse_connections_to_itself(net); }

// A comm supports 768 registrations.
VARIANT(registrations_limited) { limit_registrations(net, 768); }

// Registers no more than RLIMIT_MEMLOCK permits, which is 200 MiB in its process unless the hard limit is lower.
VARIANT(locked_memory_limited) {
  constexpr std::size_t kLimit = 200 << 20;
  auto& limited = kept<std::atomic<bool>>();
  before(net.init, [&](Init) {
    const rlimit limit{kLimit, kLimit};
    limited = setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
  });
  refuse(net.reg_mr, Result::kSystemError, [&](Register call) { return limited && call.size > kLimit; });
}

// regMr reads a byte of each page, as a plugin does that faults pages in.
VARIANT(registration_touches_pages) {
  before(net.reg_mr, [](Register call) {
    if (call.type != abi::kPointerHost) return;
    const auto* const bytes = static_cast<const volatile std::byte*>(call.data);
    for (std::size_t i = 0; i < call.size; i += 4096) static_cast<void>(bytes[i]);
  });
}

// Supports GPU memory, and iflush refuses the memory of a host.
VARIANT(flush_refuses_host_memory) {
  report_cuda_memory(net);
  net.iflush = [](Flush) { return Result::kInvalidArgument; };
}

// closeListen starts a thread, which releases the listener 300 ms later.
VARIANT(listener_closed_by_a_thread) {
  net.close_listen = [&](void* comm) {
    std::thread([&, comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      good.close_listen(comm);
    }).detach();
    return Result::kSuccess;
  };
}

}  // namespace plugfest::mutants
