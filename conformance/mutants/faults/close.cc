// Mutants of the CL rules.
#include <dlfcn.h>
#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string_view>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Marks that every process of the mutant sees: read locks on single bytes of its library file. They end with the
// process that set them. Thread safety: any thread.
class PeerMarks {
 public:
  // The mark `kind` of the connection to a listener with this handle, which must be the one that listen returned.
  static std::int64_t key(const HandleBytes& handle, int kind) {
    const std::string_view bytes(handle.data(), handle.size());
    return static_cast<std::int64_t>(std::hash<std::string_view>()(bytes) >> 8) * 4 + kind;
  }
  void set(std::int64_t key) { lock(file(), F_OFD_SETLK, F_RDLCK, key); }
  void clear(std::int64_t key) { lock(file(), F_OFD_SETLK, F_UNLCK, key); }
  bool is_set(std::int64_t key) {
    file();
    return lock(query_, F_OFD_GETLK, F_WRLCK, key) != F_UNLCK;
  }

 private:
  // Opens the file at the first use: an unused mutant leaves no descriptor behind when it is unloaded.
  int file() {
    std::call_once(once_, [this] {
      file_ = open_library();
      query_ = open_library();
    });
    return file_;
  }
  static int open_library() {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&open_library), &info);
    return open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  }
  static short lock(int file, int command, short type, std::int64_t key) {
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = key & 0x3fffffffffffffff;
    range.l_len = 1;
    fcntl(file, command, &range);
    return range.l_type;
  }

  std::once_flag once_;
  int file_ = -1;
  int query_ = -1;
};

enum { kSender, kReceiver };

// Marks of the endpoints of connections, which both processes see. Thread safety: any thread.
class ConnectionEnds {
 public:
  // Makes listen, connect and accept of `net` record the handle of each comm.
  static ConnectionEnds& watch(Net& net) {
    auto& ends = kept<ConnectionEnds>();
    on_success(net.listen, [&](Listen listen) { ends.handles_.put(*listen.comm, handle_bytes(listen.handle)); });
    on_success(net.accept, [&](Accept accept) {
      if (const auto handle = ends.handles_.find(accept.listener)) ends.handles_.put(*accept.comm, *handle);
    });
    net.connect = [&ends, good = net.connect](Connect connect) {
      // The base plugin may keep its state in the handle. A handle with other bytes belongs to another connect.
      const auto begun = ends.connects_.find(connect.handle);
      const HandleBytes now = handle_bytes(connect.handle), first = begun && begun->now == now ? begun->first : now;
      const Result result = good(connect);
      ends.connects_.put(connect.handle, {first, handle_bytes(connect.handle)});
      if (result == Result::kSuccess && *connect.comm != nullptr) {
        ends.handles_.put(*connect.comm, first);
        ends.connects_.erase(connect.handle);
      }
      return result;
    };
    return ends;
  }

  void mark(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.set(PeerMarks::key(*handle, end));
  }
  void clear(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.clear(PeerMarks::key(*handle, end));
  }
  bool is_marked(void* comm, int end) {
    const auto handle = handles_.find(comm);
    return handle && marks_.is_set(PeerMarks::key(*handle, end));
  }

 private:
  struct Pending {
    HandleBytes first;  ///< content at the first call
    HandleBytes now;    ///< content after the last call
  };
  PeerMarks marks_;
  PointerMap<Pending> connects_;     // by the address of the handle
  PointerMap<HandleBytes> handles_;  // of listeners and comms
};

}  // namespace

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

// closeSend waits while any rank is stopped.
MUTANT(close_waits_for_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  before(net.close_send, [](void*) { wait_while_a_peer_is_stopped(); });
}

// closeRecv waits while any rank is stopped.
MUTANT(close_recv_waits_for_stopped_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  before(net.close_recv, [](void*) { wait_while_a_peer_is_stopped(); });
}

// closeRecv aborts the process when the comm has receives outstanding.
MUTANT(close_aborts_during_receives, breaks("CL-03", "MR-11", "MR-12", "ER-11").also("CL-12", "ER-03", "CL-14")) {
  InFlight& in_flight = InFlight::watch(net);
  abort_if(net.close_recv, [&](void* comm) { return in_flight.receives(comm) > 0; });
}

// closeSend breaks all open send comms of the process.
MUTANT(close_breaks_all_comms, breaks("CL-06", "MR-12", "MR-18", "CL-08").also("CN-24", "TH-03")) {
  auto& closes = kept<std::atomic<int>>();
  auto& closes_at_connect = kept<PointerMap<int>>();  // by comm
  on_success(net.connect, [&](Connect connect) { closes_at_connect.put(*connect.comm, closes); });
  before(net.close_send, [&](void*) { ++closes; });
  refuse(net.isend, Result::kRemoteError,
         [&](Send send) { return closes_at_connect.find(send.comm).value_or(closes) != closes; });
}

// The last close of a process waits while a rank is stopped.
MUTANT(last_close_waits_for_peer, breaks("CL-09").also("CL-01", "CL-12")) {
  std::atomic<int>& comms = count_send_comms(net);
  on_success(net.accept, [&](Accept) { ++comms; });
  before(net.close_recv, [&](void*) {
    while (comms == 1 && a_peer_is_stopped()) pause_briefly();
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

// closeSend waits for its sends while a rank is stopped.
MUTANT(close_waits_for_sends, breaks("CL-12")) {
  InFlight& in_flight = InFlight::watch(net);
  before(net.close_send, [&](void* comm) {
    while (in_flight.sends(comm) > 0 && a_peer_is_stopped()) pause_briefly();
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
