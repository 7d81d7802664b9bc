// Mutants of the IN rules: init, finalize, contexts and their arguments; and of the LD rules that need a call.
#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Whether the base plugin works and has a device.
bool has_device(const Net& good) {
  int count = 0;
  return good.devices(&count) == Result::kSuccess && count > 0;
}

// Makes listen, connect and finalize call the base plugin with `real(context)`.
template <typename Real>
void translate_contexts(Net& net, Real real) {
  before(net.listen, [real](Listen& listen) { listen.context = real(listen.context); });
  before(net.connect, [real](Connect& connect) { connect.context = real(connect.context); });
  before(net.finalize, [real](void*& context) { context = real(context); });
}

// Makes closeSend call `log` with the logger that init received.
void log_in_close_send(Net& net, void (*log)(abi::Logger logger)) {
  static std::atomic<abi::Logger> logger{nullptr};
  before(net.init, [](Init init) { logger = init.logger; });
  before(net.close_send, [log](void*) { log(logger); });
}

}  // namespace

// init starts a thread that still runs after the unload.
MUTANT(thread_outlives_library, breaks("LD-10", "LD-11").also("TH-06")) {
  before(net.init, [](Init) {
    std::thread([] {
      for (;;) pause_briefly();
    }).detach();
  });
}

// init leaks one file descriptor per call.
MUTANT(init_leaks_a_descriptor, breaks("LD-10")) {
  before(net.init, [](Init) { open("/dev/null", O_RDONLY | O_CLOEXEC); });
}

// init fails for the second communicator of a process.
MUTANT(second_context_refused, breaks("IN-01").also("IN-08", "IN-09", "CN-25")) {
  static std::atomic<int> inits{0};
  refuse(net.init, Result::kInvalidUsage, [](Init) { return inits++ > 0; });
}

// init does not store the context and uses an internal variable.
MUTANT(context_unwritten, breaks("IN-02").also("IN-01", "IN-08")) {
  static void* own = nullptr;
  before(net.init, [](Init& init) { init.context = &own; });
  translate_contexts(net, [](void*) { return own; });
}

// init fails when it is called again without an unload.
MUTANT(second_init_refused, breaks("IN-03").also("IN-20", "LD-11").as_v(10)) {
  static std::atomic<int> inits{0};
  refuse(net.init, Result::kSystemError, [](Init) { return inits++ > 0; });
}

// init aborts the process without a device.
MUTANT(aborts_without_devices, breaks("IN-05", "IN-06", "IN-07").also("LD-09")) {
  after(net.init, [&](Init, Result result) {
    if (result != Result::kSuccess || !has_device(good)) std::abort();
    return result;
  });
}

// init fails without a device, and finalize dereferences the context without a NULL check.
MUTANT(null_context_dereferenced, breaks("IN-06")) {
  net.init = [&good](Init init) {
    void* real = nullptr;
    void** const context = init.context;
    init.context = &real;
    if (good.init(init) != Result::kSuccess || !has_device(good)) return Result::kSystemError;
    *context = new void*(real);
    return Result::kSuccess;
  };
  translate_contexts(net, [](void* context) { return *static_cast<void* volatile*>(context); });
}

// finalize aborts the process without a device.
MUTANT(finalize_needs_a_device, breaks("IN-07")) {
  static std::atomic<bool> initialized{false};
  on_success(net.init, [](Init) { initialized = true; });
  abort_if(net.finalize, [&good](void*) { return initialized && !has_device(good); });
}

// isend fails in every context after one finalize.
MUTANT(finalize_breaks_other_contexts, breaks("IN-08").also("IN-09")) {
  static std::atomic<bool> finalized{false};
  before(net.finalize, [](void*) { finalized = true; });
  refuse(net.isend, Result::kInvalidUsage, [](Send) { return finalized.load(); });
}

// finalize fails on another thread than init.
MUTANT(finalize_needs_the_thread_of_init, breaks("IN-09")) {
  auto& threads = kept<ThreadMap>();
  record_thread(net.init, threads, [](const Init& init) { return *init.context; });
  bind_to_thread(net.finalize, threads, [](void* context) { return context; });
}

// finalize waits until every send comm is closed.
MUTANT(finalize_waits_for_comms, breaks("IN-10").also("IN-08")) {
  const std::atomic<int>& open = count_send_comms(net);
  before(net.finalize, [&](void*) {
    while (open > 0) pause_briefly();
  });
}

// A context has at most 16 send comms.
MUTANT(sixteen_comms_per_context, breaks("IN-11").also("CN-09", "PR-06")) {
  limit_send_comms(net, 16, Result::kInternalError);
}

// connect fails when the process has 20 send comms.
MUTANT(comm_numbers_run_out, breaks("CN-09", "IN-11")) { limit_send_comms(net, 20, Result::kInternalError); }

namespace {

void limit_traffic_class(Net& net) {
  refuse(net.init, Result::kInvalidArgument, [](Init init) { return init.config->trafficClass > 63; });
}

}  // namespace

// init refuses a traffic class above 63.
MUTANT(traffic_class_refused, breaks("IN-12")) { limit_traffic_class(net); }

// init refuses traffic classes that are not DSCP values: IN-12 only warns.
MUTANT(traffic_class_limited, breaks().also("IN-12")) { limit_traffic_class(net); }

// init drops the traffic class.
MUTANT(traffic_class_ignored, breaks("IN-20")) {
  static abi::newest::CommConfig undefined{abi::kTrafficClassUndefined};
  before(net.init, [](Init& init) { init.config = &undefined; });
}

// connect reads the configuration that init received, if it has a traffic class.
MUTANT(config_kept, breaks("IN-12").also("IN-20")) {
  static std::atomic<abi::newest::CommConfig*> config{nullptr};
  static std::atomic<int> traffic_class{0};
  before(net.init, [](Init init) {
    config = init.config;
    traffic_class = init.config->trafficClass;
  });
  refuse(net.connect, Result::kInternalError, [](Connect) {
    if (traffic_class == abi::kTrafficClassUndefined) return false;
    const volatile int* const now = &config.load()->trafficClass;
    return *now != traffic_class;
  });
}

// closeSend logs a number with the format %s.
MUTANT(log_argument_of_wrong_type, breaks("IN-13")
                                       .also("CL-*", "CN-*", "ER-*", "IN-09", "IN-16", "LD-11", "MR-*", "TH-*", "TS-09")
                                       .because("each rule in which the plugin logs a warning may crash")) {
  log_in_close_send(net, [](abi::Logger logger) {
    const char* const format = "NET/Mutant : closing %s";
    logger(abi::kLogInfo, abi::kLogNet, __FILE__, __LINE__, format, 1);
  });
}

// closeSend logs a warning although nothing failed.
MUTANT(warning_without_error, breaks("IN-13")) {
  log_in_close_send(net, [](abi::Logger logger) {
    logger(abi::kLogWarn, abi::kLogNet, __FILE__, __LINE__, "NET/Mutant : closing a comm");
  });
}

// init reports to the profiler without a NULL check.
MUTANT(null_profiler_called, breaks("IN-14")) {
  before(net.init, [](Init init) {
    void* event = nullptr;
    const volatile abi::ProfilerCallback callback = init.profiler;
    callback(&event, abi::kProfilerNetStart, nullptr, 0, nullptr);
  });
}

}  // namespace plugfest::mutants
