// Mutants of the ER and TH rules about errors and their scope, limits, logging, threads and processes.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "conformance/mutants/faults/peers.h"
#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Makes isend and test succeed without an outcome instead of failing, while `condition` holds.
template <typename Condition>
void hide_errors(Net& net, Condition condition) {
  const auto hide = [condition](auto& function) {
    after(function, [condition](const auto& call, Result result) {
      if (result == Result::kSuccess || !condition()) return result;
      call.clear_outcome();
      return Result::kSuccess;
    });
  };
  hide(net.isend);
  hide(net.test);
}

}  // namespace

// isend and test never return an error.
MUTANT(errors_hidden, breaks("TS-09", "ER-04", "ER-09").also("XF-37", "TS-10", "CL-11", "ER-05", "ER-07", "ER-12")) {
  hide_errors(net, [] { return true; });
}

// isend and test hide errors while a port is down.
MUTANT(errors_hidden_while_port_down, breaks("ER-09")) { hide_errors(net, a_port_is_down); }

// The failed completion of a send is lost when the test of an older send finds it.
MUTANT(failed_completion_swallowed, breaks("TS-09")) {
  auto& comms = comms_of_requests(net.isend);
  auto& sends = kept<PointerMap<int>>();  // in flight, by comm
  on_success(net.isend, [&](Send send) { sends.add(send.comm, 1); });
  after(net.test, [&](Test test, Result result) {
    const auto comm = comms.find(test.request);
    if (!comm) return result;
    const int in_flight = sends.find(*comm).value_or(0);
    if (result == Result::kSuccess && *test.done == 1) {
      comms.erase(test.request);
      sends.put(*comm, in_flight - 1);
    }
    if (result == Result::kSuccess || in_flight < 2) return result;
    *test.done = 0;
    return Result::kSuccess;
  });
}

// regMr returns InProgress instead of an error.
MUTANT(errors_returned_as_in_progress, breaks("ER-01")) {
  after(net.reg_mr, [](Register, Result result) { return result == Result::kSuccess ? result : Result::kInProgress; });
}

// Exits the process when isend, test or connect fails.
MUTANT(exits_on_error, breaks("ER-03", "TS-09", "ER-01", "ER-04", "ER-09")
                           .also("CN-12", "CN-18", "CN-21", "MR-12", "XF-11", "XF-37", "TS-10", "CL-04", "CL-11",
                                 "ER-02", "ER-05", "ER-06", "ER-07", "ER-11", "CN-34", "ER-12")) {
  on_failure(net.isend, [](Send) { std::_Exit(1); });
  on_failure(net.test, [](Test) { std::_Exit(1); });
  on_failure(net.connect, [](Connect) { std::_Exit(1); });
}

// connect fails once an earlier peer has ended: what the process knew of that peer stays.
MUTANT(dead_peer_stays_known, breaks("ER-13").also("ER-12")) {
  constexpr int kLives = 2;  // a kind of mark
  struct Peers {
    PeerMarks marks;
    std::mutex mutex;
    std::set<std::int64_t> keys;
  };
  auto& peers = kept<Peers>();
  auto& ends = ConnectionEnds::watch(net);
  on_success(net.listen, [&](Listen listen) { peers.marks.set(PeerMarks::key(handle_bytes(listen.handle), kLives)); });
  on_success(net.connect, [&](Connect connect) {
    const std::lock_guard lock(peers.mutex);
    if (const auto handle = ends.handle_of(*connect.comm)) peers.keys.insert(PeerMarks::key(*handle, kLives));
  });
  refuse(net.connect, Result::kInternalError, [&](Connect) {
    const std::lock_guard lock(peers.mutex);
    return std::any_of(peers.keys.begin(), peers.keys.end(), [&](auto key) { return !peers.marks.is_set(key); });
  });
}

// Writes to the socket of a dead peer without MSG_NOSIGNAL.
MUTANT(dead_peer_raises_sigpipe, breaks("XF-37")) {
  const auto raise_if_lost = [](const auto&, Result result) {
    if (result == Result::kRemoteError || result == Result::kSystemError) raise(SIGPIPE);
    return result;
  };
  after(net.test, raise_if_lost);
  after(net.isend, raise_if_lost);
}

// After one failed operation, all operations of the process fail.
MUTANT(error_ends_all_comms, breaks("ER-05").also("MR-12", "CL-11", "ER-12", "XF-11")) {
  static std::atomic<bool> failed{false};
  const auto fail = [](auto& function) {
    on_failure(function, [](const auto&) { failed = true; });
    refuse(function, Result::kSystemError, [](const auto&) { return failed.load(); });
  };
  fail(net.isend);
  fail(net.test);
}

// A comm that has failed reports later sends as done.
MUTANT(failed_comm_reports_done, breaks("ER-05")) {
  PointerSet& failed = failed_send_comms(net);
  static char nothing;
  net.isend = [&failed, isend = net.isend](Send send) {
    if (!failed.contains(send.comm)) return isend(send);
    *send.request = &nothing;
    return Result::kSuccess;
  };
  net.test = [test_real = net.test](Test test) {
    if (test.request != &nothing) return test_real(test);
    *test.done = 1;
    return Result::kSuccess;
  };
  before(net.close_send, [&](void* comm) { failed.erase(comm); });
}

// listen aborts the process when it cannot open a file.
MUTANT(aborts_without_descriptors, breaks("ER-06", "ER-12")) {
  before(net.listen, [](Listen) {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) std::abort();
    close(file);
  });
}

// connect asserts that it can set options of its socket.
MUTANT(socket_options_asserted, breaks("ER-12").also("ER-06")) {
  before(net.connect, [](Connect) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return;
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0) std::abort();
    close(fd);
  });
}

// A connect that fails closes its socket twice.
MUTANT(failed_connect_closes_twice, breaks("ER-12")) {
  on_failure(net.connect, [](Connect) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    close(fd);
    close(fd);
  });
}

// A connect that fails leaves its socket open.
MUTANT(failed_connect_leaks_a_socket, breaks("ER-12")) {
  on_failure(net.connect, [](Connect) { static_cast<void>(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
}

namespace {

void log_nothing(int, unsigned long, const char*, int, const char*, ...) {}

}  // namespace

// Logs nothing.
MUTANT(errors_not_logged, breaks("ER-07")) {
  before(net.init, [](Init& init) { init.logger = log_nothing; });
}

// test fails permanently once a port was down.
MUTANT(port_error_is_final, breaks("ER-10")) {
  static std::atomic<bool> failed{false};
  refuse(net.test, Result::kRemoteError, [](Test) {
    if (a_port_is_down()) failed = true;
    return failed.load();
  });
}

// test exits the process when a port is down.
MUTANT(exits_on_port_error, breaks("ER-11", "ER-09", "ER-10")) {
  before(net.test, [](Test) {
    if (a_port_is_down()) std::exit(1);
  });
}

// regMr and test take two locks in opposite orders if another thread transfers on the comm.
MUTANT(service_and_progress_deadlock, breaks("MR-14", "TH-03").also("PR-*")) {
  struct Locks {
    std::mutex cache, endpoint;
    std::atomic<bool> registering = false;
  };
  auto& locks = kept<Locks>();
  InFlight& in_flight = InFlight::watch(net);
  net.reg_mr = [&](Register call) {
    if (!in_flight.used_by_another_thread(call.comm)) return good.reg_mr(call);
    const std::lock_guard cache(locks.cache);
    locks.registering = true;
    // Makes the deadlock likely: waits until another thread holds the other lock.
    for (int i = 0; i < 20000 && in_flight.used_by_another_thread(call.comm); ++i) {
      if (!locks.endpoint.try_lock()) break;
      locks.endpoint.unlock();
      sched_yield();
    }
    const std::lock_guard endpoint(locks.endpoint);
    locks.registering = false;
    return good.reg_mr(call);
  };
  net.test = [&locks, watched = net.test](Test test) {
    const std::lock_guard endpoint(locks.endpoint);
    if (locks.registering) const std::lock_guard cache(locks.cache);
    return watched(test);
  };
}

// A comm's queue belongs to the thread that used the comm first.
MUTANT(comm_belongs_to_thread, breaks("TH-04", "CL-07")) {
  auto& owners = kept<ThreadMap>();
  bind_to_thread(net.isend, owners, [](const Send& send) { return send.comm; });
  before(net.close_send, [&](void* comm) { owners.erase(comm); });
}

// At most seven processes of a host can connect from a device.
MUTANT(device_serves_seven_processes, breaks("TH-08")) {
  refuse(net.connect, Result::kSystemError, [](Connect connect) {
    static std::mutex mutex;
    static std::set<int> ours;
    const std::lock_guard lock(mutex);
    for (int place = 0; place < 7 && !ours.contains(connect.device); ++place) {
      // The socket stays open until the process ends. Its name is unique in the network namespace, which is the host.
      const int name = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "plugfest-mutant-device-%d-%d", connect.device,
                    place);
      if (bind(name, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
        ours.insert(connect.device);
      else
        close(name);
    }
    return !ours.contains(connect.device);
  });
}

}  // namespace plugfest::mutants
