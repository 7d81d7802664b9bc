// Mutants of the LD and IN rules that a call shows.
#include <fcntl.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

}  // namespace

// Has no iflush, though NCCL never asks whether it has.
MUTANT(iflush_is_null, breaks("LD-08")) { net.table->iflush = nullptr; }

// Leaves a thread behind that runs when the library is gone.
MUTANT(a_thread_outlives_the_library, breaks("LD-10")) {
  net.init = [&good](void** context, auto... arguments) {
    std::thread([] {
      for (;;) pause_briefly();
    }).detach();
    return good.init(context, arguments...);
  };
}

// Keeps a file open for each init.
MUTANT(a_file_stays_open_for_each_init, breaks("LD-10")) {
  net.init = [&good](void** context, auto... arguments) {
    open("/dev/null", O_RDONLY | O_CLOEXEC);
    return good.init(context, arguments...);
  };
}

// Lets one communicator in and no second.
MUTANT(second_context_refused, breaks("IN-01")) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kInvalidUsage;
    return good.init(context, arguments...);
  };
}

// Refuses the init of the second generation of communicators.
MUTANT(second_init_refused, breaks("IN-03").as_v(10)) {
  net.init = [&good, inits = std::make_shared<std::atomic<int>>(0)](void** context, auto... arguments) {
    if (inits->fetch_add(1) > 0) return Result::kSystemError;
    return good.init(context, arguments...);
  };
}

// Gives up the process when there is no device.
MUTANT(aborts_without_devices, breaks("IN-05")) {
  net.init = [&good](void** context, auto... arguments) {
    int count = 0;
    const Result result = good.init(context, arguments...);
    if (result != Result::kSuccess || good.devices(&count) != Result::kSuccess || count == 0) std::abort();
    return result;
  };
}

// Reads the context in finalize without a look at the pointer.
MUTANT(finalize_reads_its_context, breaks("IN-06")) {
  net.init = [&good](void** context, auto... arguments) {
    void* theirs = nullptr;
    const Result result = good.init(&theirs, arguments...);
    if (result == Result::kSuccess) *context = new void*(theirs);
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

// Ends all communicators with the first.
MUTANT(finalize_ends_everything, breaks("IN-08")) {
  auto over = std::make_shared<std::atomic<bool>>(false);
  net.finalize = [&good, over](void* context) {
    over->store(true);
    return good.finalize(context);
  };
  net.isend = [&good, over](auto... arguments) {
    return over->load() ? Result::kInvalidUsage : good.isend(arguments...);
  };
}

// Waits in finalize until every comm is closed.
MUTANT(finalize_waits_for_comms, breaks("IN-10")) {
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

// Hands the logger a number where its format wants a text.
MUTANT(log_line_with_a_wrong_argument, breaks("IN-13")) {
  auto log = std::make_shared<std::atomic<abi::Logger>>(nullptr);
  net.init = [&good, log](void** context, std::uint64_t comm_id, abi::v12::CommConfig* config, abi::Logger logger,
                          abi::ProfilerCallback profiler) {
    log->store(logger);
    return good.init(context, comm_id, config, logger, profiler);
  };
  net.close_send = [&good, log](void* comm) {
    const char* const format = "NET/Mutant : closing %s";
    log->load()(abi::kLogInfo, abi::kLogNet, __FILE__, __LINE__, format, 1);
    return good.close_send(comm);
  };
}

// Warns of nothing.
MUTANT(warns_of_nothing, breaks("IN-13")) {
  auto log = std::make_shared<std::atomic<abi::Logger>>(nullptr);
  net.init = [&good, log](void** context, std::uint64_t comm_id, abi::v12::CommConfig* config, abi::Logger logger,
                          abi::ProfilerCallback profiler) {
    log->store(logger);
    return good.init(context, comm_id, config, logger, profiler);
  };
  net.close_send = [&good, log](void* comm) {
    log->load()(abi::kLogWarn, abi::kLogNet, __FILE__, __LINE__, "NET/Mutant : closing a comm");
    return good.close_send(comm);
  };
}

}  // namespace plugfest::mutants
