// Mutants of rules about the versions of a library and the process that loads it.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "conformance/mutants/mutant.h"
#include "conformance/mutants/variants/plugin_thread.h"

namespace plugfest::mutants {
namespace {

void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

/// The first call starts a thread that never ends.
void start_endless_thread() {
  static std::once_flag started;
  std::call_once(started, [] {
    std::thread([] {
      for (;;) pause_briefly();
    }).detach();
  });
}

/// Whether an init comes from the table of v10, which has no argument for a communicator's id.
bool is_older_version(std::uint64_t comm_id) { return comm_id == 0; }

/// Set by a constructor of the library.
const pid_t loading_process = getpid();

}  // namespace

// The older of the two exported versions cannot be initialised.
MUTANT(older_version_is_a_stub, breaks("LD-05", "DP-25")) {
  net.init = [&good](void** context, std::uint64_t comm_id, auto... arguments) {
    return is_older_version(comm_id) ? Result::kInternalError : good.init(context, comm_id, arguments...);
  };
}

// The older version reports the speed in Gbit/s.
MUTANT(speed_depends_on_version, breaks("DP-25")) {
  auto older = std::make_shared<std::atomic<bool>>(false);
  net.init = [&good, older](void** context, std::uint64_t comm_id, auto... arguments) {
    older->store(is_older_version(comm_id));
    return good.init(context, comm_id, arguments...);
  };
  net.get_properties = [&good, older](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (older->load()) properties->speed /= 1000;
    return result;
  };
}

// init changes the plugin's name.
MUTANT(renamed_in_init, breaks("LD-07")) { net.table->name = "Renamed"; }

namespace {

/// Receives the signals of the process.
class SignalThread : public PluginThread {
  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    if (!ending) changed_.wait(lock);
    return false;
  }
};

class PollingThread : public PluginThread {
  bool step(std::unique_lock<std::mutex>& lock, bool) override {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 15);  // the rules get most of the time of a processor
    lock.unlock();
    for (int i = 0; i < 1000; ++i) asm volatile("" ::: "memory");
    lock.lock();
    return false;
  }
};

}  // namespace

// A thread of the plugin receives the application's signals.
MUTANT(thread_receives_signals, breaks("TH-06")) { PluginThread::install(net, good, std::make_shared<SignalThread>()); }

// A thread of the plugin polls although nothing is to be done.
MUTANT(idle_thread_polls, breaks("TH-06")) { PluginThread::install(net, good, std::make_shared<PollingThread>()); }

// The first connect starts a thread that finalize does not end.
MUTANT(thread_outlives_finalize, breaks("LD-11").also("TH-06")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    start_endless_thread();
    return good.connect(context, device, handle, comm);
  };
}

// init writes to stdout.
MUTANT(init_prints, breaks("LD-12")) {
  net.init = [&good](void** context, auto... arguments) {
    std::puts("NET/Mutant : Using interface eth0");
    return good.init(context, arguments...);
  };
}

// init catches SIGINT.
MUTANT(init_catches_a_signal, breaks("LD-12")) {
  net.init = [&good](void** context, auto... arguments) {
    signal(SIGINT, [](int) {});
    return good.init(context, arguments...);
  };
}

// The first listen starts a thread that only finalize would end, which v10 does not have.
MUTANT(thread_survives_unload, breaks("IN-04", "LD-11").as_v(10)) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    start_endless_thread();
    return good.listen(context, device, handle, comm);
  };
}

// An exit handler frees what close uses.
MUTANT(exit_handler_frees_comms, breaks("IN-16")) {
  static std::atomic<bool> freed{false};
  std::atexit([] { freed = true; });
  net.close_send = [&good](void* comm) {
    if (freed) std::abort();
    return good.close_send(comm);
  };
}

// An exit handler waits until all send comms are closed.
MUTANT(exit_waits_for_comms, breaks("IN-16")) {
  static std::atomic<int> open_comms{0};
  std::atexit([] {
    while (open_comms > 0) pause_briefly();
  });
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) ++open_comms;
    return result;
  };
  net.close_send = [&good](void* comm) {
    --open_comms;
    return good.close_send(comm);
  };
}

// Programs that the process starts inherit the socket of each listener.
MUTANT(listener_inherited, breaks("IN-17")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    static const int listener = socket(AF_INET, SOCK_STREAM, 0);
    return listener < 0 ? Result::kSystemError : good.listen(context, device, handle, comm);
  };
}

// A fork ends all connections of the parent.
MUTANT(fork_ends_connections, breaks("IN-17")) {
  static std::atomic<bool> forked{false};
  pthread_atfork(
      nullptr, [] { forked = true; }, nullptr);
  net.isend = [&good](auto... arguments) { return forked ? Result::kSystemError : good.isend(arguments...); };
}

// init works only in the process that loaded the library.
MUTANT(bound_to_the_loading_process, breaks("IN-18")) {
  net.init = [&good](void** context, auto... arguments) {
    return getpid() == loading_process ? good.init(context, arguments...) : Result::kInternalError;
  };
}

}  // namespace plugfest::mutants
