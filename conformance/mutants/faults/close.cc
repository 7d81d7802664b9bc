// Mutants of the CL rules.
#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/stopped_peer.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// Marks that every process of the mutant sees: read locks on single bytes of its library file. They end with the
/// process that set them. Thread safety: any thread.
class PeerMarks {
 public:
  PeerMarks() = default;
  ~PeerMarks() {
    if (!open_) return;
    close(file_);
    close(query_);
  }
  PeerMarks(const PeerMarks&) = delete;
  PeerMarks& operator=(const PeerMarks&) = delete;

  /// The mark `kind` of the connection to a listener with this handle, which must be that of listen.
  static std::int64_t key(const void* handle, int kind) {
    const std::string_view bytes(static_cast<const char*>(handle), abi::kHandleBytes);
    return static_cast<std::int64_t>(std::hash<std::string_view>()(bytes) >> 8) * 4 + kind;
  }
  void set(std::int64_t key) { lock(file(), F_OFD_SETLK, F_RDLCK, key); }
  void clear(std::int64_t key) { lock(file(), F_OFD_SETLK, F_UNLCK, key); }
  bool is_set(std::int64_t key) {
    file();
    return lock(query_, F_OFD_GETLK, F_WRLCK, key) != F_UNLCK;
  }

 private:
  /// Opens the files at the first use: an unused mutant leaves no descriptor behind when it is unloaded.
  int file() {
    std::call_once(once_, [this] {
      file_ = open_library();
      query_ = open_library();
      open_ = true;
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
  bool open_ = false;
  int file_ = -1;
  int query_ = -1;
};

/// The ends of a connection.
enum { kSender, kReceiver };

/// Marks of the ends of connections, which both processes see. Thread safety: any thread.
class ConnectionEnds {
 public:
  /// Makes listen, connect and accept of `net` record the handle of each comm.
  static std::shared_ptr<ConnectionEnds> watch(Net& net, const Net& good) {
    auto ends = std::make_shared<ConnectionEnds>();
    const auto bytes_of = [](const void* handle) {
      Handle bytes;
      std::memcpy(bytes.data(), handle, bytes.size());
      return bytes;
    };
    net.listen = [&good, ends, bytes_of](void* context, int device, void* handle, void** comm) {
      const Result result = good.listen(context, device, handle, comm);
      if (result == Result::kSuccess) ends->handles_.put(*comm, bytes_of(handle));
      return result;
    };
    net.accept = [&good, ends](void* listen_comm, void** comm) {
      const Result result = good.accept(listen_comm, comm);
      const auto handle = ends->handles_.find(listen_comm);
      if (result == Result::kSuccess && *comm != nullptr && handle) ends->handles_.put(*comm, *handle);
      return result;
    };
    net.connect = [&good, ends, bytes_of](void* context, int device, void* handle, void** comm) {
      // The base plugin may keep its state in the handle. Other bytes than it left there begin another connect.
      const auto begun = ends->connects_.find(handle);
      const Handle first = begun && begun->now == bytes_of(handle) ? begun->first : bytes_of(handle);
      const Result result = good.connect(context, device, handle, comm);
      ends->connects_.put(handle, {first, bytes_of(handle)});
      if (result == Result::kSuccess && *comm != nullptr) {
        ends->handles_.put(*comm, first);
        ends->connects_.erase(handle);
      }
      return result;
    };
    return ends;
  }

  void mark(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.set(PeerMarks::key(handle->data(), end));
  }
  void clear(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.clear(PeerMarks::key(handle->data(), end));
  }
  bool is_marked(void* comm, int end) {
    const auto handle = handles_.find(comm);
    return handle && marks_.is_set(PeerMarks::key(handle->data(), end));
  }

 private:
  using Handle = std::array<std::byte, abi::kHandleBytes>;
  struct Connect {
    Handle first;  ///< at the first call
    Handle now;    ///< after the last one
  };
  PeerMarks marks_;
  PointerMap<Connect> connects_;  // by the address of the handle
  PointerMap<Handle> handles_;    // of listeners and comms
};

void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

/// Counts connects that are not finished, and open comms of both kinds.
struct Counts {
  PointerMap<bool> pending;  // by handle
  std::atomic<int> half_open{0};
  std::atomic<int> comms{0};

  static std::shared_ptr<Counts> watch(Net& net, const Net& good) {
    auto counts = std::make_shared<Counts>();
    net.connect = [&good, counts](void* context, int device, void* handle, void** comm) {
      const Result result = good.connect(context, device, handle, comm);
      const bool finished = result != Result::kSuccess || *comm != nullptr;
      if (!finished && !counts->pending.find(handle)) {
        counts->pending.put(handle, true);
        ++counts->half_open;
      } else if (finished && counts->pending.find(handle)) {
        counts->pending.erase(handle);
        --counts->half_open;
      }
      if (result == Result::kSuccess && *comm != nullptr) ++counts->comms;
      return result;
    };
    net.accept = [&good, counts](void* listen_comm, void** comm) {
      const Result result = good.accept(listen_comm, comm);
      if (result == Result::kSuccess && *comm != nullptr) ++counts->comms;
      return result;
    };
    net.close_send = [&good, counts](void* comm) {
      --counts->comms;
      return good.close_send(comm);
    };
    net.close_recv = [&good, counts](void* comm) {
      --counts->comms;
      return good.close_recv(comm);
    };
    return counts;
  }
};

}  // namespace

// A receive whose sender has closed completes with no bytes, instead of an error or after ten tests.
MUTANT(idle_receive_completes, breaks("CL-04")) {
  auto ends = ConnectionEnds::watch(net, good);
  auto comms = std::make_shared<PointerMap<void*>>();  // by request
  auto tests = std::make_shared<PointerMap<int>>();
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) {
      comms->put(*request, comm);
      tests->put(*request, 0);
    }
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const auto comm = comms->find(request);
    if (!comm) return result;
    const bool over = result == Result::kSuccess && *done == 1;
    const bool patient = result == Result::kSuccess && tests->change(request, [](int& count) { return ++count; }) < 10;
    if (over) comms->erase(request);
    if (over || patient || !ends->is_marked(*comm, kSender)) return result;
    comms->erase(request);
    *done = 1;
    if (sizes != nullptr) *sizes = 0;
    return Result::kSuccess;
  };
  net.close_send = [=, &good](void* comm) {
    ends->mark(comm, kSender);
    return good.close_send(comm);
  };
}

// Each closeRecv leaves 64 KiB allocated.
MUTANT(receive_comm_leaks, breaks("CL-05", "CN-27")) {
  net.close_recv = [&good](void* comm) {
    constexpr std::size_t kState = 65536, kPage = 4096;
    auto* const state = static_cast<volatile char*>(std::malloc(kState));
    for (std::size_t i = 0; i < kState; i += kPage) state[i] = 1;
    return good.close_recv(comm);
  };
}

// closeSend reads the first byte of the last message of 50,000 to 60,000 bytes.
MUTANT(close_reads_the_last_buffer, breaks("CL-08")) {
  auto buffers = std::make_shared<PointerMap<const volatile char*>>();
  net.isend = [&good, buffers](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size >= 50000 && size <= 60000) buffers->put(comm, static_cast<const char*>(data));
    return good.isend(comm, data, size, tag, mhandle, request);
  };
  net.close_send = [&good, buffers](void* comm) {
    if (const auto buffer = buffers->find(comm)) static_cast<void>(**buffer);
    buffers->erase(comm);
    return good.close_send(comm);
  };
}

// The last close of a process waits while a rank is stopped.
MUTANT(last_close_waits_for_peer, breaks("CL-09").also("CL-01", "CL-12")) {
  auto counts = Counts::watch(net, good);
  net.close_recv = [&good, counts](void* comm) {
    while (counts->comms == 1 && a_peer_is_stopped()) pause_briefly();
    --counts->comms;
    return good.close_recv(comm);
  };
}

// finalize aborts the process when a connect was abandoned.
MUTANT(finalize_counts_connects, breaks("CL-10").also("IN-10")) {
  auto counts = Counts::watch(net, good);
  net.finalize = [&good, counts](void* context) {
    if (counts->half_open > 0) std::abort();
    return good.finalize(context);
  };
}

// deregMr and closeSend fail after an error of the comm.
MUTANT(failed_comm_cannot_be_closed, breaks("CL-11").also("MR-12", "TS-09")) {
  auto comms = std::make_shared<PointerMap<void*>>();  // of requests
  auto failed = std::make_shared<PointerMap<bool>>();
  net.isend = [&good, comms, failed](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result != Result::kSuccess) failed->put(comm, true);
    if (result == Result::kSuccess && *request != nullptr) comms->put(*request, comm);
    return result;
  };
  net.test = [&good, comms, failed](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const auto comm = comms->find(request);
    if (result != Result::kSuccess && comm) failed->put(*comm, true);
    return result;
  };
  net.dereg_mr = [&good, failed](void* comm, void* mhandle) {
    return failed->find(comm) ? Result::kRemoteError : good.dereg_mr(comm, mhandle);
  };
}

// closeSend waits for its sends while a rank is stopped.
MUTANT(close_waits_for_sends, breaks("CL-12")) {
  auto sends = std::make_shared<PointerMap<std::set<void*>>>();
  auto comms = std::make_shared<PointerMap<void*>>();
  net.isend = [&good, sends, comms](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result != Result::kSuccess || *request == nullptr) return result;
    comms->put(*request, comm);
    sends->change(comm, [&](std::set<void*>& open) { return open.insert(*request); });
    return result;
  };
  net.test = [&good, sends, comms](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    const auto comm = comms->find(request);
    if (comm && (result != Result::kSuccess || *done == 1)) {
      sends->change(*comm, [&](std::set<void*>& open) { return open.erase(request); });
      comms->erase(request);
    }
    return result;
  };
  net.close_send = [&good, sends](void* comm) {
    const auto open = [&] { return sends->change(comm, [](std::set<void*>& all) { return all.size(); }); };
    while (open() > 0 && a_peer_is_stopped()) pause_briefly();
    sends->erase(comm);
    return good.close_send(comm);
  };
}

// closeSend and closeRecv of a connection wait for each other when they run at the same time.
MUTANT(closes_wait_for_each_other, breaks("CL-13")) {
  auto ends = ConnectionEnds::watch(net, good);
  const auto close = [ends](void* comm, int own, int other, const auto& real) {
    ends->mark(comm, own);
    for (int i = 0; i < 20 && !ends->is_marked(comm, other); ++i) pause_briefly();
    while (ends->is_marked(comm, other)) pause_briefly();
    ends->clear(comm, own);
    return real(comm);
  };
  net.close_send = [&good, close](void* comm) { return close(comm, kSender, kReceiver, good.close_send); };
  net.close_recv = [&good, close](void* comm) { return close(comm, kReceiver, kSender, good.close_recv); };
}

}  // namespace plugfest::mutants
