// Mutants of the CN rules about arguments and outputs of connect and accept, and about many connections.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "conformance/mutants/faults/peers.h"
#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// Only one device can have listeners at a time.
MUTANT(one_device_listens, breaks("CN-01").also("PR-*")) { use_one_device(net.listen, net.close_listen); }

// connect stores a pointer to its state if the listening process gives no heartbeat for some time.
MUTANT(connect_stores_its_state, breaks("CN-06", "CN-08")
                                     .also("CL-*", "CN-*", "PR-*", "TS-02", "TS-07", "XF-*")
                                     .because("each connection that is not finished at once returns a wrong comm")) {
  Heartbeats& heartbeats = Heartbeats::watch(net);
  auto& states = kept<PointerSet>();
  on_pending(net.connect, [&](Connect connect) {
    if (heartbeats.listener_answers(connect.handle)) return;
    *connect.comm = connect.handle;
    states.insert(connect.handle);
  });
  // The state is not a comm: the base plugin would crash.
  refuse(net.reg_mr, Result::kInvalidArgument, [&](Register call) { return states.contains(call.comm); });
}

// isend reads the handle that connect received.
MUTANT(handle_read_after_connect, breaks("CN-05").also("CN-24", "PR-*")) {
  auto& handles = kept<PointerMap<const volatile char*>>();
  on_success(net.connect,
             [&](Connect connect) { handles.put(*connect.comm, static_cast<const char*>(connect.handle)); });
  before(net.isend, [&](Send send) {
    if (const auto handle = handles.find(send.comm)) static_cast<void>(**handle);
  });
  before(net.close_send, [&](void* comm) { handles.erase(comm); });
}

// connect reads as many bytes of the address in the handle as the handle says.
MUTANT(address_length_unchecked, breaks("CN-34")) {
  constexpr std::size_t kLength = abi::kHandleBytes - 1, kAddress = abi::kHandleBytes - 28;
  on_success(net.listen, [](Listen listen) { static_cast<std::uint8_t*>(listen.handle)[kLength] = 16; });
  before(net.connect, [](Connect connect) {
    const auto* const handle = static_cast<const volatile std::uint8_t*>(connect.handle);
    for (std::size_t i = 0; i < handle[kLength]; ++i) static_cast<void>(handle[kAddress + i]);
  });
}

// connect over a device fails while the process has send comms over another one.
MUTANT(one_device_connects, breaks("CN-11").also("ER-05", "PR-*")) { use_one_device(net.connect, net.close_send); }

// A connect or accept that fails leaves a pointer in its output.
MUTANT(failed_connect_stores_a_comm, breaks("CN-12")) {
  static int comm_of_a_failed_call = 0;
  on_failure(net.connect, [](Connect connect) { *connect.comm = &comm_of_a_failed_call; });
  on_failure(net.accept, [](Accept accept) { *accept.comm = &comm_of_a_failed_call; });
}

// closeRecv reads through its argument without a NULL check.
MUTANT(null_comm_dereferenced, breaks("CN-13")) {
  before(net.close_recv, [](void* comm) { static_cast<void>(*static_cast<volatile char*>(comm)); });
}

// closeListen of a listener that has accepted no peer ends the comm that was accepted last.
MUTANT(unused_listener_ends_a_comm, breaks("CN-17").also("PR-04", "PR-05", "PR-06")) {
  auto& used = kept<PointerSet>();
  static std::atomic<void*> last{nullptr}, ended{nullptr};
  on_success(net.accept, [&](Accept accept) {
    used.insert(accept.listener);
    last = *accept.comm;
    if (ended == *accept.comm) ended = nullptr;
  });
  before(net.close_listen, [&](void* listener) {
    if (!used.erase(listener)) ended = last.load();
  });
  refuse(net.irecv, Result::kRemoteError, [](Receive receive) { return receive.comm == ended; });
}

// listen fails when 50 listeners are open.
MUTANT(fifty_listeners_at_most, breaks("CN-18").also("PR-*")) {
  auto& open = kept<std::atomic<int>>();
  on_success(net.listen, [&](Listen) { ++open; });
  before(net.close_listen, [&](void*) { --open; });
  refuse(net.listen, Result::kInternalError, [&](Listen) { return open >= 50; });
}

// accept aborts the process when no descriptor is available.
MUTANT(aborts_in_accept_without_descriptors, breaks("ER-06", "ER-12")) {
  before(net.accept, [](Accept) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) std::abort();
    close(listener);
  });
}

// A listener accepts one peer.
MUTANT(one_peer_per_listener, breaks("CN-19")) {
  auto& used = kept<PointerSet>();
  on_success(net.listen, [&](Listen listen) { used.erase(*listen.comm); });
  on_success(net.accept, [&](Accept accept) { used.insert(accept.listener); });
  refuse(net.accept, Result::kInternalError, [&](Accept accept) { return used.contains(accept.listener); });
}

// connect hides all errors and retries without limit.
MUTANT(connect_never_fails, breaks("CN-21")) {
  after(net.connect, [](Connect connect, Result result) {
    if (result != Result::kSuccess) connect.clear_outcome();
    return Result::kSuccess;
  });
}

// connect holds a lock that test needs until no operation of another thread is in flight: rules that connect during
// that time hang.
MUTANT(connect_waits_for_transfers, breaks("CN-24")
                                        .also("CL-*", "CN-*", "ER-*", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")
                                        .because("each rule that connects while another thread transfers hangs")) {
  InFlight& in_flight = InFlight::watch(net);
  auto& mutex = kept<std::mutex>();
  net.connect = [&](Connect connect) {
    const std::lock_guard lock(mutex);
    while (in_flight.used_by_another_thread()) pause_briefly();
    return good.connect(connect);
  };
  net.test = [&mutex, watched = net.test](Test test) {
    const std::lock_guard lock(mutex);
    return watched(test);
  };
}

// In a process that has called listen, connect refuses a context that has not.
MUTANT(context_of_listener_required, breaks("CN-25")) {
  static std::atomic<bool> listened{false};
  auto& listeners = kept<PointerSet>();
  on_success(net.listen, [&](Listen listen) {
    listeners.insert(listen.context);
    listened = true;
  });
  refuse(net.connect, Result::kInvalidUsage,
         [&](Connect connect) { return listened && !listeners.contains(connect.context); });
}

// setNetAttr interprets an undefined number of flows as a number.
MUTANT(undefined_attributes_counted, breaks("CN-26").also("CN-11", "TH-03", "PR-*")) {
  static std::atomic<int> flows{1};
  net.table->setNetAttr = [](void*, abi::newest::NetAttr* attributes) {
    flows = attributes->sendCommAttr.maxFlowsPerPeer;
    return Result::kSuccess;
  };
  refuse(net.connect, Result::kInternalError, [](Connect) { return flows <= 0; });
}

// A process can connect 255 times.
MUTANT(comm_ids_run_out, breaks("CN-27").also("CN-24")) {
  static std::atomic<int> ids{0};
  on_success(net.connect, [](Connect) { ++ids; });
  refuse(net.connect, Result::kInternalError, [](Connect) { return ids == 255; });
}

// Each connect leaks a socket.
MUTANT(connect_leaks_a_socket, breaks("CN-27", "CL-05").also("ER-12")) {
  on_success(net.connect, [](Connect) { static_cast<void>(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
}

// closeSend fails on another thread than connect.
MUTANT(close_needs_the_thread_of_connect, breaks("CN-28", "CL-07").also("TH-04")) {
  auto& threads = kept<ThreadMap>();
  record_thread(net.connect, threads, [](const Connect& connect) { return *connect.comm; });
  bind_to_thread(net.close_send, threads, [](void* comm) { return comm; });
}

// An accept that is not finished returns ncclInProgress.
MUTANT(accept_returns_in_progress, breaks("CN-30").also("ER-01")) { return_in_progress(net.accept); }

// Sends of more than 4 KiB never complete at a host with an MTU below 1500.
MUTANT(small_mtu_stalls, breaks("CN-33")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  net.isend = [&](Send send) {
    static const bool stalls = smallest_mtu() < 1500;
    if (!stalls || send.size <= 4096) return good.isend(send);
    *send.request = held_requests.hold([](void** real) {
      *real = nullptr;
      return Result::kSuccess;
    });
    return Result::kSuccess;
  };
}

}  // namespace plugfest::mutants
