// Mutants of rules about contexts and the arguments of init.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// init does not store the context and uses its own variable.
MUTANT(context_unwritten, breaks("IN-02").also("IN-01")) {
  auto own = std::make_shared<void*>(nullptr);
  net.init = [&good, own](void**, auto... arguments) { return good.init(own.get(), arguments...); };
  net.listen = [&good, own](void*, int device, void* handle, void** comm) {
    return good.listen(*own, device, handle, comm);
  };
  net.connect = [&good, own](void*, int device, void* handle, void** comm) {
    return good.connect(*own, device, handle, comm);
  };
  net.finalize = [&good, own](void*) { return good.finalize(*own); };
}

// finalize aborts the process when there is no device.
MUTANT(finalize_needs_a_device, breaks("IN-07")) {
  auto initialised = std::make_shared<std::atomic<bool>>(false);
  net.init = [&good, initialised](auto... arguments) {
    const Result result = good.init(arguments...);
    if (result == Result::kSuccess) initialised->store(true);
    return result;
  };
  net.finalize = [&good, initialised](void* context) {
    int count = 0;
    if (initialised->load() && (good.devices(&count) != Result::kSuccess || count == 0)) std::abort();
    return good.finalize(context);
  };
}

// finalize fails on another thread than that of init.
MUTANT(finalize_needs_the_thread_of_init, breaks("IN-09")) {
  auto threads = std::make_shared<PointerMap<std::thread::id>>();
  net.init = [&good, threads](void** context, auto... arguments) {
    const Result result = good.init(context, arguments...);
    threads->put(*context, std::this_thread::get_id());
    return result;
  };
  net.finalize = [&good, threads](void* context) {
    const auto thread = threads->find(context);
    if (thread && *thread != std::this_thread::get_id()) return Result::kInternalError;
    return good.finalize(context);
  };
}

// A context has at most 16 send comms.
MUTANT(sixteen_comms_per_context, breaks("IN-11").also("CN-09", "PR-06")) {
  auto comms = std::make_shared<std::atomic<int>>(0);
  net.connect = [&good, comms](void* context, int device, void* handle, void** comm) {
    if (comms->load() >= 16) return Result::kInternalError;
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) ++*comms;
    return result;
  };
  net.close_send = [&good, comms](void* comm) {
    --*comms;
    return good.close_send(comm);
  };
}

// init refuses a traffic class above 63.
MUTANT(traffic_class_refused, breaks("IN-12")) {
  net.init = [&good](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, auto... arguments) {
    if (config->trafficClass > 63) return Result::kInvalidArgument;
    return good.init(context, comm_id, config, arguments...);
  };
}

// connect reads the configuration that init was given, if it has a traffic class.
MUTANT(config_kept, breaks("IN-12")) {
  struct Config {
    std::atomic<abi::newest::CommConfig*> kept{nullptr};
    std::atomic<int> traffic_class{0};
  };
  auto config = std::make_shared<Config>();
  net.init = [&good, config](void** context, std::uint64_t comm_id, abi::newest::CommConfig* given, auto... arguments) {
    config->kept = given;
    config->traffic_class = given->trafficClass;
    return good.init(context, comm_id, given, arguments...);
  };
  net.connect = [&good, config](auto... arguments) {
    if (config->traffic_class == abi::kTrafficClassUndefined) return good.connect(arguments...);
    const volatile int* const traffic_class = &config->kept.load()->trafficClass;
    return *traffic_class == config->traffic_class ? good.connect(arguments...) : Result::kInternalError;
  };
}

// init reports to the profiler without a NULL check.
MUTANT(null_profiler_called, breaks("IN-14")) {
  net.init = [&good](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
                     abi::ProfilerCallback profiler) {
    void* event = nullptr;
    const volatile abi::ProfilerCallback callback = profiler;
    callback(&event, abi::kProfilerNetStart, nullptr, 0, nullptr);
    return good.init(context, comm_id, config, logger, profiler);
  };
}

}  // namespace plugfest::mutants
