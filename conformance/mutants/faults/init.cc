// Mutants of the IN rules, and of those LD rules that need a call.
#include <fcntl.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

/// Keeps the logger that init gets.
std::shared_ptr<std::atomic<abi::Logger>> keep_logger(Net& net, const Net& good) {
  auto log = std::make_shared<std::atomic<abi::Logger>>(nullptr);
  net.init = [&good, log](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
                          abi::ProfilerCallback profiler) {
    log->store(logger);
    return good.init(context, comm_id, config, logger, profiler);
  };
  return log;
}

}  // namespace

// The function table has no iflush.
MUTANT(iflush_is_null, breaks("LD-08")) { net.table->iflush = nullptr; }

// init starts a thread that still runs after the unload.
MUTANT(thread_outlives_library, breaks("LD-10", "LD-11").also("TH-06")) {
  net.init = [&good](void** context, auto... arguments) {
    std::thread([] {
      for (;;) pause_briefly();
    }).detach();
    return good.init(context, arguments...);
  };
}

// init leaks one file descriptor per call.
MUTANT(init_leaks_a_descriptor, breaks("LD-10")) {
  net.init = [&good](void** context, auto... arguments) {
    open("/dev/null", O_RDONLY | O_CLOEXEC);
    return good.init(context, arguments...);
  };
}

// init fails for the second communicator of a process.
MUTANT(second_context_refused, breaks("IN-01").also("IN-08", "IN-09", "CN-25")) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kInvalidUsage;
    return good.init(context, arguments...);
  };
}

// init fails when it is called again without an unload.
MUTANT(second_init_refused, breaks("IN-03").also("LD-11").as_v(10)) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kSystemError;
    return good.init(context, arguments...);
  };
}

// init aborts the process when there is no device.
MUTANT(aborts_without_devices, breaks("IN-05", "IN-06", "IN-07")) {
  net.init = [&good](void** context, auto... arguments) {
    int count = 0;
    const Result result = good.init(context, arguments...);
    if (result != Result::kSuccess || good.devices(&count) != Result::kSuccess || count == 0) std::abort();
    return result;
  };
}

// init fails without a device, and finalize dereferences the context without a NULL check.
MUTANT(null_context_dereferenced, breaks("IN-06")) {
  net.init = [&good](void** context, auto... arguments) {
    void* real = nullptr;
    int count = 0;
    const Result result = good.init(&real, arguments...);
    if (result != Result::kSuccess || good.devices(&count) != Result::kSuccess || count == 0) {
      return Result::kSystemError;
    }
    *context = new void*(real);
    return result;
  };
  net.finalize = [&good](void* context) { return good.finalize(*static_cast<void* volatile*>(context)); };
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    return good.listen(*static_cast<void**>(context), device, handle, comm);
  };
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    return good.connect(*static_cast<void**>(context), device, handle, comm);
  };
}

// isend fails in every context after one finalize.
MUTANT(finalize_breaks_other_contexts, breaks("IN-08").also("IN-09")) {
  auto finalized = std::make_shared<std::atomic<bool>>(false);
  net.finalize = [&good, finalized](void* context) {
    finalized->store(true);
    return good.finalize(context);
  };
  net.isend = [&good, finalized](auto... arguments) {
    return finalized->load() ? Result::kInvalidUsage : good.isend(arguments...);
  };
}

// finalize waits until every send comm is closed.
MUTANT(finalize_waits_for_comms, breaks("IN-10").also("IN-08")) {
  auto open_comms = std::make_shared<std::atomic<int>>(0);
  net.connect = [&good, open_comms](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) ++*open_comms;
    return result;
  };
  net.close_send = [&good, open_comms](void* comm) {
    --*open_comms;
    return good.close_send(comm);
  };
  net.finalize = [&good, open_comms](void* context) {
    while (open_comms->load() > 0) pause_briefly();
    return good.finalize(context);
  };
}

// closeSend logs a number with the format %s.
MUTANT(log_argument_of_wrong_type,
       breaks("IN-13").also("CL-*", "CN-*", "ER-*", "IN-09", "IN-16", "LD-11", "MR-*", "TH-*", "TS-09")) {
  net.close_send = [&good, log = keep_logger(net, good)](void* comm) {
    const char* const format = "NET/Mutant : closing %s";
    log->load()(abi::kLogInfo, abi::kLogNet, __FILE__, __LINE__, format, 1);
    return good.close_send(comm);
  };
}

// closeSend logs a warning although nothing failed.
MUTANT(warning_without_error, breaks("IN-13")) {
  net.close_send = [&good, log = keep_logger(net, good)](void* comm) {
    log->load()(abi::kLogWarn, abi::kLogNet, __FILE__, __LINE__, "NET/Mutant : closing a comm");
    return good.close_send(comm);
  };
}

}  // namespace plugfest::mutants
