// Mutants of the ER and TH rules about the reach of an error, limits, logging, threads and processes.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// After one failed operation, all operations of the process fail.
MUTANT(error_ends_all_comms, breaks("ER-05").also("MR-12", "CL-11")) {
  auto failed = std::make_shared<std::atomic<bool>>(false);
  net.isend = [&good, failed](auto... arguments) {
    const Result result = *failed ? Result::kSystemError : good.isend(arguments...);
    if (result != Result::kSuccess) *failed = true;
    return result;
  };
  net.test = [&good, failed](void* request, int* done, int* sizes) {
    const Result result = *failed ? Result::kSystemError : good.test(request, done, sizes);
    if (result != Result::kSuccess) *failed = true;
    return result;
  };
}

// A comm that has failed reports later sends as done.
MUTANT(failed_comm_reports_done, breaks("ER-05")) {
  auto failed = std::make_shared<PointerMap<bool>>();
  auto comms = std::make_shared<PointerMap<void*>>();  // by request
  static char nothing;
  net.isend = [=, &good](void* comm, auto... arguments) {
    void** const request = std::get<sizeof...(arguments) - 1>(std::make_tuple(arguments...));
    if (failed->find(comm)) {
      *request = &nothing;
      return Result::kSuccess;
    }
    const Result result = good.isend(comm, arguments...);
    if (result != Result::kSuccess) failed->put(comm, true);
    if (result == Result::kSuccess && *request != nullptr) comms->put(*request, comm);
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    if (request == &nothing) {
      *done = 1;
      return Result::kSuccess;
    }
    const Result result = good.test(request, done, sizes);
    if (const auto comm = comms->find(request); comm && result != Result::kSuccess) failed->put(*comm, true);
    return result;
  };
  net.close_send = [=, &good](void* comm) {
    failed->erase(comm);
    return good.close_send(comm);
  };
}

// listen aborts the process when it cannot open a file.
MUTANT(aborts_without_descriptors, breaks("ER-06", "CN-18")) {
  net.listen = [&good](auto... arguments) {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) std::abort();
    close(file);
    return good.listen(arguments...);
  };
}

namespace {

void log_nothing(int, unsigned long, const char*, int, const char*, ...) {}

}  // namespace

// Logs nothing.
MUTANT(errors_not_logged, breaks("ER-07")) {
  net.init = [&good](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger,
                     abi::ProfilerCallback profiler) {
    return good.init(context, comm_id, config, log_nothing, profiler);
  };
}

// The failed completion of a send is lost when the test of an older one finds it.
MUTANT(failed_completion_swallowed, breaks("TS-09")) {
  auto comms = std::make_shared<PointerMap<void*>>();  // by request
  auto sends = std::make_shared<PointerMap<int>>();    // in flight, by comm
  net.isend = [=, &good](void* comm, auto... arguments) {
    const Result result = good.isend(comm, arguments...);
    void* const request = *std::get<sizeof...(arguments) - 1>(std::make_tuple(arguments...));
    if (result != Result::kSuccess || request == nullptr) return result;
    comms->put(request, comm);
    sends->change(comm, [](int& count) { return ++count; });
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const auto comm = comms->find(request);
    if (!comm) return result;
    const int in_flight = sends->find(*comm).value_or(0);
    if (result == Result::kSuccess && *done == 1) {
      comms->erase(request);
      sends->put(*comm, in_flight - 1);
    }
    if (result == Result::kSuccess || in_flight < 2) return result;
    *done = 0;
    return Result::kSuccess;
  };
}

// regMr and test take two locks in opposite orders if another thread transfers on the comm.
MUTANT(service_and_progress_deadlock, breaks("MR-14", "TH-03").also("PR-*")) {
  struct Locks {
    std::mutex cache, endpoint;
    std::atomic<bool> registering = false;
  };
  auto locks = std::make_shared<Locks>();
  auto in_flight = InFlight::watch(net, good);
  net.reg_mr = [=, &good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if (!in_flight->used_by_another_thread(comm)) return good.reg_mr(comm, data, size, type, mhandle);
    const std::lock_guard cache(locks->cache);
    locks->registering = true;
    // Makes the fault show: waits until another thread holds the other lock.
    for (int i = 0; i < 20000 && in_flight->used_by_another_thread(comm); ++i) {
      if (!locks->endpoint.try_lock()) break;
      locks->endpoint.unlock();
      sched_yield();
    }
    const std::lock_guard endpoint(locks->endpoint);
    locks->registering = false;
    return good.reg_mr(comm, data, size, type, mhandle);
  };
  net.test = [=, test = net.test](void* request, int* done, int* sizes) {
    const std::lock_guard endpoint(locks->endpoint);
    if (locks->registering) const std::lock_guard cache(locks->cache);
    return test(request, done, sizes);
  };
}

// A comm's queue belongs to the thread that used the comm first.
MUTANT(comm_belongs_to_thread, breaks("TH-04", "CL-07")) {
  auto owners = std::make_shared<PointerMap<std::thread::id>>();
  net.isend = [&good, owners](void* comm, auto... arguments) {
    const auto self = std::this_thread::get_id();
    if (owners->change(comm, [&](auto& owner) { return owner == std::thread::id() ? owner = self : owner; }) != self) {
      return Result::kInternalError;
    }
    return good.isend(comm, arguments...);
  };
  net.close_send = [&good, owners](void* comm) {
    owners->erase(comm);
    return good.close_send(comm);
  };
}

// Seven processes of a host can connect from a device.
MUTANT(device_serves_seven_processes, breaks("TH-08")) {
  net.connect = [&good](void* context, int device, auto... arguments) {
    static std::mutex mutex;
    static std::set<int> ours;
    const std::lock_guard lock(mutex);
    for (int place = 0; place < 7 && !ours.contains(device); ++place) {
      // Held until the process ends. Names are those of the network namespace, which is the host.
      const int name = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "plugfest-mutant-device-%d-%d", device, place);
      if (bind(name, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        ours.insert(device);
      } else {
        close(name);
      }
    }
    return ours.contains(device) ? good.connect(context, device, arguments...) : Result::kSystemError;
  };
}

}  // namespace plugfest::mutants
