// Variants with limits and refusals that NCCL handles.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <thread>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// setNetAttr returns an error, which NCCL ignores.
VARIANT(attributes_refused) {
  net.table->setNetAttr = [](void*, abi::newest::NetAttr*) { return Result::kInvalidArgument; };
}

// ptrSupport has a bit that NCCL does not know.
MUTANT(unknown_pointer_type_supported, breaks().also("DP-11")) {
  change_properties(net, [](Properties& properties) { properties.ptrSupport |= 0x40; });
}

// Each test of an operation that is not done logs a line that NCCL prints with NCCL_DEBUG=INFO only.
VARIANT(logs_each_test) {
  auto& logger = kept<std::atomic<abi::Logger>>();
  before(net.init, [&](Init init) { logger = init.logger; });
  on_pending(net.test, [&](Test test) {
    logger.load()(abi::kLogInfo, abi::kLogNet, "variant", 1, "request %p waits", test.request);
  });
}

// The size that test reports for a send has no meaning: NCCL does not read it.
VARIANT(size_of_sends_without_meaning) {
  auto& sends = kept<PointerSet>();
  on_success(net.isend, [&](Send send) {
    if (*send.request != nullptr) sends.insert(*send.request);
  });
  on_success(net.test, [&](Test test) {
    if (*test.done == 1 && sends.erase(test.request) && test.sizes != nullptr) test.sizes[0] = 1;
  });
}

// A comm has eight places for receives of one buffer. irecvConsumed, in the order of posting, frees them.
VARIANT(receives_freed_when_consumed) {
  accept_one_buffer_per_receive(net);
  constexpr std::size_t kPlaces = 8;
  auto& places = kept<PointerMap<std::deque<void*>>>();
  net.irecv = [&, forward = net.irecv](Receive receive) {
    *receive.request = nullptr;
    if (places.change(receive.comm, [](auto& taken) { return taken.size(); }) >= kPlaces) return Result::kSuccess;
    return forward(receive);
  };
  on_success(net.irecv, [&](Receive receive) {
    if (*receive.request == nullptr) return;
    places.change(receive.comm, [&](auto& taken) {
      taken.push_back(*receive.request);
      return true;
    });
  });
  net.irecv_consumed = [&](Consumed call) {
    return places.change(call.comm, [&](auto& taken) {
      if (taken.empty() || taken.front() != call.request) return Result::kInternalError;
      taken.pop_front();
      return Result::kSuccess;
    });
  };
  before(net.close_recv, [&](void* comm) { places.erase(comm); });
}

// connect refuses handles of its own process.
MUTANT(no_connection_to_itself, breaks().also("CN-10", "CN-19")) { refuse_connections_to_itself(net); }

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

// regMr reads a byte of each page, like a plugin that makes pages present.
MUTANT(registration_touches_pages, breaks().also("MR-10")) {
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

// A connect that cannot reach its listener is tried again for a minute. Each of these calls takes a second.
VARIANT(failed_connect_tried_for_a_minute) {
  auto& tries = kept<PointerMap<int>>();  // by handle
  after(net.connect, [&](Connect connect, Result result) {
    if (result == Result::kSuccess) return result;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (tries.add(connect.handle, 1) == 60) return result;
    connect.clear_outcome();
    return Result::kSuccess;
  });
}

// listen fails when 200 listeners are open, and the process cannot connect from then on.
MUTANT(no_connections_after_too_many_listeners, breaks().also("CN-18")) {
  auto& open = kept<std::atomic<int>>();
  static std::atomic<bool> exhausted{false};
  on_success(net.listen, [&](Listen) { ++open; });
  before(net.close_listen, [&](void*) { --open; });
  refuse(net.listen, Result::kSystemError, [&](Listen) {
    if (open >= 200) exhausted = true;
    return exhausted.load();
  });
  refuse(net.connect, Result::kSystemError, [](Connect) { return exhausted.load(); });
  refuse(net.accept, Result::kSystemError, [](Accept) { return exhausted.load(); });
}

// connect refuses a host with an MTU below 1500.
MUTANT(small_mtu_refused, breaks().also("CN-33")) {
  refuse(net.connect, Result::kSystemError, [](Connect) { return smallest_mtu() < 1500; });
}

// The init of CollNet fails, so that NCCL uses the net only.
MUTANT_OF(collnet_init_fails, kCollNet, breaks()) {
  calls["init"] = [](Words&) { return Result::kSystemError; };
}

}  // namespace plugfest::mutants
