// Mutants of the CL rules.

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "conformance/mutants/faults/peers.h"
#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
// A receive whose sender has closed completes with no bytes after ten tests, instead of with an error.
MUTANT(idle_receive_completes, breaks("CL-04")) {
  ConnectionEnds& ends = ConnectionEnds::watch(net);
  auto& comms = comms_of_requests(net.irecv);
  auto& tests = kept<PointerMap<int>>();
  on_success(net.irecv, [&](Receive receive) { tests.put(*receive.request, 0); });
  after(net.test, [&](Test test, Result result) {
    const auto comm = comms.find(test.request);
    if (!comm) return result;
    const bool over = result == Result::kSuccess && *test.done == 1;
    const bool waits = result == Result::kSuccess && tests.add(test.request, 1) < 10;
    if (over) comms.erase(test.request);
    if (over || waits || !ends.is_marked(*comm, kSender)) return result;
    comms.erase(test.request);
    *test.done = 1;
    if (test.sizes != nullptr) *test.sizes = 0;
    return Result::kSuccess;
  });
  before(net.close_send, [&](void* comm) { ends.mark(comm, kSender); });
}

// Each closeRecv leaves 64 KiB allocated.
MUTANT(receive_comm_leaks, breaks("CL-05", "CN-27")) {
  before(net.close_recv, [](void*) { leak(65536); });
}

// closeSend reads the first byte of the last message of 50,000 to 60,000 bytes.
MUTANT(close_reads_the_last_buffer, breaks("CL-08")) {
  auto& buffers = kept<PointerMap<const volatile char*>>();
  before(net.isend, [&](Send send) {
    if (send.size >= 50000 && send.size <= 60000) buffers.put(send.comm, static_cast<const char*>(send.data));
  });
  before(net.close_send, [&](void* comm) {
    if (const auto buffer = buffers.take(comm)) static_cast<void>(**buffer);
  });
}

// closeSend waits for a heartbeat of the receiver.
MUTANT(close_waits_for_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  Heartbeats& heartbeats = Heartbeats::watch(net);
  before(net.close_send, [&](void* comm) { heartbeats.wait_for_peer(comm, kReceiver); });
}

// closeRecv waits for a heartbeat of the sender.
MUTANT(close_recv_waits_for_stopped_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  Heartbeats& heartbeats = Heartbeats::watch(net);
  before(net.close_recv, [&](void* comm) { heartbeats.wait_for_peer(comm, kSender); });
}

// closeRecv aborts the process when the comm has receives outstanding.
MUTANT(close_aborts_during_receives, breaks("CL-03", "MR-11", "MR-12", "ER-11").also("CL-12", "ER-03", "CL-14")) {
  InFlight& in_flight = InFlight::watch(net);
  abort_if(net.close_recv, [&](void* comm) { return in_flight.receives(comm) > 0; });
}

// closeSend breaks all open send comms of the process.
MUTANT(close_breaks_all_comms, breaks("CL-06", "MR-18", "CL-08").also("MR-12", "CN-24", "TH-03")) {
  auto& closes = kept<std::atomic<int>>();
  auto& closes_at_connect = kept<PointerMap<int>>();  // by comm
  on_success(net.connect, [&](Connect connect) { closes_at_connect.put(*connect.comm, closes); });
  before(net.close_send, [&](void*) { ++closes; });
  refuse(net.isend, Result::kRemoteError,
         [&](Send send) { return closes_at_connect.find(send.comm).value_or(closes) != closes; });
}

// closeRecv of the last comm of a process waits for a heartbeat of the sender.
MUTANT(last_close_waits_for_peer, breaks("CL-09").also("CL-01", "CL-12")) {
  std::atomic<int>& comms = count_send_comms(net);
  on_success(net.accept, [&](Accept) { ++comms; });
  Heartbeats& heartbeats = Heartbeats::watch(net);
  before(net.close_recv, [&](void* comm) {
    if (comms == 1) heartbeats.wait_for_peer(comm, kSender);
    --comms;
  });
}

// finalize aborts the process when a connect was abandoned.
MUTANT(finalize_counts_connects, breaks("CL-10").also("IN-10")) {
  auto& pending = kept<PointerSet>();  // handles
  after(net.connect, [&](Connect connect, Result result) {
    if (result != Result::kSuccess || *connect.comm != nullptr)
      pending.erase(connect.handle);
    else
      pending.insert(connect.handle);
    return result;
  });
  abort_if(net.finalize, [&](void*) { return !pending.empty(); });
}

// deregMr and closeSend fail after the comm has failed.
MUTANT(failed_comm_cannot_be_closed, breaks("CL-11").also("MR-12", "TS-09", "ER-12")) {
  PointerSet& failed = failed_send_comms(net);
  refuse(net.dereg_mr, Result::kRemoteError, [&](Deregister call) { return failed.contains(call.comm); });
}

// closeSend of a comm with sends in flight waits for a heartbeat of the receiver.
MUTANT(close_waits_for_sends, breaks("CL-12")) {
  InFlight& in_flight = InFlight::watch(net);
  Heartbeats& heartbeats = Heartbeats::watch(net);
  before(net.close_send, [&](void* comm) {
    if (in_flight.sends(comm) > 0) heartbeats.wait_for_peer(comm, kReceiver);
    in_flight.forget(comm);
  });
}

// A close fails while another thread of the process closes.
MUTANT(closes_at_the_same_time_fail, breaks("CL-14").also("PR-*")) {
  auto& closing = kept<std::atomic<int>>();
  const auto fail = [&closing](Function<void*>& function) {
    function = [&closing, next = std::move(function)](void* comm) {
      const bool alone = closing++ == 0;
      for (int i = 0; i < 10 && alone; ++i) pause_briefly();  // makes the overlap of two closes likely
      const Result result = next(comm);
      --closing;
      return alone ? result : Result::kInternalError;
    };
  };
  fail(net.close_send);
  fail(net.close_recv);
}

// closeSend and closeRecv of a connection wait for each other when they run at the same time.
MUTANT(closes_wait_for_each_other, breaks("CL-13")) {
  ConnectionEnds& ends = ConnectionEnds::watch(net);
  const auto close = [&ends](Function<void*>& function, int own, int other) {
    before(function, [&ends, own, other](void* comm) {
      ends.mark(comm, own);
      for (int i = 0; i < 20 && !ends.is_marked(comm, other); ++i) pause_briefly();
      while (ends.is_marked(comm, other)) pause_briefly();
      ends.clear(comm, own);
    });
  };
  close(net.close_send, kSender, kReceiver);
  close(net.close_recv, kReceiver, kSender);
}

}  // namespace plugfest::mutants
