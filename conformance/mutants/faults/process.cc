// Mutants of rules about libraries, their versions, and the process that loads them.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// The first call starts a thread that never ends.
void start_endless_thread() {
  static std::once_flag started;
  std::call_once(started, [] {
    std::thread([] {
      for (;;) pause_briefly();
    }).detach();
  });
}

// Whether an init comes from the table of v10, which has no communicator id argument.
bool is_older_version(std::uint64_t comm_id) { return comm_id == 0; }

// Set by a constructor of the library.
const pid_t loading_process = getpid();

}  // namespace

// Separate libraries, whose sources (elf_libraries.cc, tcp_libraries.cc) say what each breaks.
LIBRARY_MUTANT(hidden_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(static_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(function_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(wrong_size, breaks("LD-02").refusing_calls());
LIBRARY_MUTANT(undefined_symbol, breaks("LD-03").refusing_calls());
LIBRARY_MUTANT(undefined_symbol_of_cuda, breaks("LD-03").refusing_calls());
LIBRARY_MUTANT(missing_dependency, breaks("LD-03").refusing_calls());
LIBRARY_MUTANT(newest_version_only, breaks("LD-04").refusing_calls());
LIBRARY_MUTANT(no_finalize_after_failed_init, breaks("LD-09").refusing_calls());
LIBRARY_MUTANT(null_name, breaks("LD-06").refusing_calls());
LIBRARY_MUTANT(queue_pair_number_of_16_bits, breaks("XF-01").refusing_calls());
LIBRARY_MUTANT(tuner_pointer, breaks("LD-16").refusing_calls());
LIBRARY_MUTANT(accept_waits_for_connect, breaks("CN-07", "CN-09").also("CN-08", "CN-18", "ER-09", "ER-12").as_v(8));
LIBRARY_MUTANT(early_messages_dropped, breaks("CN-20").also("ER-09", "ER-12").as_v(8));
LIBRARY_MUTANT(recv_waits_for_rest_of_header, breaks("XF-43").also("ER-09").as_v(8));
LIBRARY_MUTANT(send_waits_for_rest_of_header, breaks("XF-43").also("ER-09").as_v(8));

// The older of the two exported versions cannot be initialized.
MUTANT(older_version_is_a_stub, breaks("LD-05", "DP-25")) {
  refuse(net.init, Result::kInternalError, [](Init init) { return is_older_version(init.comm_id); });
}

// The older version reports the speed in Gbit/s.
MUTANT(speed_depends_on_version, breaks("DP-25")) {
  static std::atomic<bool> older{false};
  before(net.init, [](Init init) { older = is_older_version(init.comm_id); });
  change_properties(net, [](Properties& properties) { properties.speed /= older ? 1000 : 1; });
}

// init changes the plugin's name.
MUTANT(renamed_in_init, breaks("LD-07")) { net.table->name = "Renamed"; }

namespace {

// Receives the signals of the process.
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
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 15);  // leaves most of the processor's time to the rules
    lock.unlock();
    for (int i = 0; i < 1000; ++i) asm volatile("" ::: "memory");
    lock.lock();
    return false;
  }
};

}  // namespace

// A thread of the plugin receives the application's signals.
MUTANT(thread_receives_signals, breaks("TH-06")) { PluginThread::install(net, kept<SignalThread>()); }

// A thread of the plugin polls although no work is pending.
MUTANT(idle_thread_polls, breaks("TH-06")) { PluginThread::install(net, kept<PollingThread>()); }

// The first connect starts a thread that finalize does not end.
MUTANT(thread_outlives_finalize, breaks("LD-11").also("TH-06")) {
  before(net.connect, [](Connect) { start_endless_thread(); });
}

// init writes to stdout.
MUTANT(init_prints, breaks("LD-12")) {
  before(net.init, [](Init) { std::puts("NET/Mutant : Using interface eth0"); });
}

// init catches SIGINT.
MUTANT(init_catches_a_signal, breaks("LD-12")) {
  before(net.init, [](Init) { signal(SIGINT, [](int) {}); });
}

// The first listen or connect starts a thread that only finalize would end; v10 has no finalize.
MUTANT(thread_survives_unload, breaks("IN-04", "LD-11").also("IN-20", "TH-06").as_v(10)) {
  before(net.listen, [](Listen) { start_endless_thread(); });
  before(net.connect, [](Connect) { start_endless_thread(); });
}

// An exit handler frees memory that close uses.
MUTANT(exit_handler_frees_comms, breaks("IN-16")) {
  static std::atomic<bool> freed{false};
  std::atexit([] { freed = true; });
  abort_if(net.close_send, [](void*) { return freed.load(); });
}

// An exit handler waits until all send comms are closed.
MUTANT(exit_waits_for_comms, breaks("IN-16")) {
  static const std::atomic<int>& open_comms = count_send_comms(net);
  std::atexit([] {
    while (open_comms > 0) pause_briefly();
  });
}

// Programs that the process starts inherit the socket of each listener.
MUTANT(listener_inherited, breaks("IN-17")) {
  refuse(net.listen, Result::kSystemError, [](Listen) {
    static const int listener = socket(AF_INET, SOCK_STREAM, 0);
    return listener < 0;
  });
}

// A fork ends all connections of the parent.
MUTANT(fork_ends_connections, breaks("IN-17")) {
  static std::atomic<bool> forked{false};
  pthread_atfork(
      nullptr, [] { forked = true; }, nullptr);
  refuse(net.isend, Result::kSystemError, [](Send) { return forked.load(); });
}

// init works only in the process that loaded the library.
MUTANT(bound_to_the_loading_process, breaks("IN-18")) {
  refuse(net.init, Result::kInternalError, [](Init) { return getpid() != loading_process; });
}

}  // namespace plugfest::mutants
