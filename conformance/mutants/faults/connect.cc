// Mutants of the CN rules.
#include <sched.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/stopped_peer.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

using HandleBytes = std::array<std::byte, abi::kHandleBytes>;

HandleBytes copy_of(const void* handle) {
  HandleBytes bytes;
  std::memcpy(bytes.data(), handle, bytes.size());
  return bytes;
}

}  // namespace

// listen takes a handle that is not zeroed for one of 129 bytes.
MUTANT(handle_of_129_bytes, breaks("CN-02", "CN-03")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    auto* const bytes = static_cast<volatile char*>(handle);
    const bool zeroed = bytes[abi::kHandleBytes - 1] == 0;
    const Result result = good.listen(context, device, handle, comm);
    if (!zeroed) bytes[abi::kHandleBytes] = 1;
    return result;
  };
}

// listen stores a pointer in the handle, and connect follows it.
MUTANT(handle_holds_a_pointer, breaks("CN-04").also("CL-*", "CN-*", "DP-20", "ER-*", "FL-06", "FL-07", "IN-*", "LD-05",
                                                    "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    auto* const real = new HandleBytes{};
    const Result result = good.listen(context, device, real->data(), comm);
    std::memset(handle, 0, abi::kHandleBytes);
    std::memcpy(handle, &real, sizeof real);
    return result;
  };
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    HandleBytes* real = nullptr;
    std::memcpy(&real, handle, sizeof real);
    return good.connect(context, device, real->data(), comm);
  };
}

// connect waits until the peer has accepted.
MUTANT(connect_waits_for_accept,
       breaks("CN-06", "CN-09").also("*").without_draw("every rule that calls connect before accept stops")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    Result result = Result::kSuccess;
    do {
      result = good.connect(context, device, handle, comm);
    } while (result == Result::kSuccess && *comm == nullptr);
    return result;
  };
}

// When the peer has answered, connect waits while a rank is stopped.
MUTANT(connect_waits_after_the_answer, breaks("CN-06")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    while (result == Result::kSuccess && *comm != nullptr && a_peer_is_stopped()) sched_yield();
    return result;
  };
}

// Two listeners that are open at the same time accept each other's peers.
MUTANT(listeners_swapped, breaks("CN-09").also("CN-*", "ER-03", "ER-06", "PR-*")) {
  struct Pairs {
    std::mutex mutex;
    void* single = nullptr;           // an open listener without a partner
    std::map<void*, void*> partners;  // contains each pair twice, once per direction
  };
  auto pairs = std::make_shared<Pairs>();
  net.listen = [&good, pairs](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    if (result != Result::kSuccess) return result;
    const std::lock_guard lock(pairs->mutex);
    if (pairs->single == nullptr) {
      pairs->single = *comm;
    } else {
      pairs->partners[pairs->single] = *comm;
      pairs->partners[*comm] = std::exchange(pairs->single, nullptr);
    }
    return result;
  };
  net.accept = [&good, pairs](void* listen_comm, void** comm) {
    void* taken = listen_comm;
    {
      const std::lock_guard lock(pairs->mutex);
      const auto partner = pairs->partners.find(listen_comm);
      if (partner != pairs->partners.end()) taken = partner->second;
    }
    return good.accept(taken, comm);
  };
  net.close_listen = [&good, pairs](void* listen_comm) {
    {
      const std::lock_guard lock(pairs->mutex);
      if (pairs->single == listen_comm) pairs->single = nullptr;
      const auto partner = pairs->partners.find(listen_comm);
      if (partner != pairs->partners.end()) {
        pairs->partners.erase(partner->second);
        pairs->partners.erase(partner);
      }
    }
    return good.close_listen(listen_comm);
  };
}

namespace {

/// The handles that a process has made.
class OwnHandles {
 public:
  /// Makes listen of `net` record them.
  static std::shared_ptr<OwnHandles> watch(Net& net, const Net& good) {
    auto own = std::make_shared<OwnHandles>();
    net.listen = [&good, own](void* context, int device, void* handle, void** comm) {
      const Result result = good.listen(context, device, handle, comm);
      const std::lock_guard lock(own->mutex_);
      own->handles_.insert(copy_of(handle));
      return result;
    };
    return own;
  }
  bool contain(void* handle) {
    const std::lock_guard lock(mutex_);
    return handles_.count(copy_of(handle)) != 0;
  }

 private:
  std::mutex mutex_;
  std::set<HandleBytes> handles_;
};

}  // namespace

// connect refuses handles of its own process.
MUTANT(connection_to_itself_refused, breaks("CN-10").also("LD-11", "CN-19", "CN-25", "XF-30", "CL-11")) {
  net.connect = [&good, own = OwnHandles::watch(net, good)](void* context, int device, void* handle, void** comm) {
    return own->contain(handle) ? Result::kInvalidUsage : good.connect(context, device, handle, comm);
  };
}

// isend drops empty messages to the process itself.
MUTANT(empty_message_to_itself_dropped, breaks("CN-10")) {
  auto connecting = std::make_shared<PointerMap<bool>>();  // by handle: a later call may find its content changed
  auto comms = std::make_shared<PointerMap<bool>>();
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.connect = [=, &good, own = OwnHandles::watch(net, good)](void* context, int device, void* handle, void** comm) {
    if (own->contain(handle)) connecting->put(handle, true);
    const Result result = good.connect(context, device, handle, comm);
    if (result != Result::kSuccess || *comm == nullptr || !connecting->find(handle)) return result;
    connecting->erase(handle);
    comms->put(*comm, true);
    return result;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size != 0 || !comms->find(comm)) return good.isend(comm, data, size, tag, mhandle, request);
    *request = held_requests->hold({});
    return Result::kSuccess;
  };
}

// closeListen breaks those comms that the listener accepted and that have received something.
MUTANT(closed_listener_breaks_comms, breaks("CN-15", "CN-17")) {
  struct Accepted {
    std::mutex mutex;
    std::map<void*, std::set<void*>> of_listener;
    std::set<void*> used;
    std::set<void*> dead;
  };
  auto accepted = std::make_shared<Accepted>();
  net.accept = [&good, accepted](void* listen_comm, void** comm) {
    const Result result = good.accept(listen_comm, comm);
    const std::lock_guard lock(accepted->mutex);
    if (result != Result::kSuccess || *comm == nullptr) return result;
    accepted->of_listener[listen_comm].insert(*comm);
    accepted->used.erase(*comm);
    accepted->dead.erase(*comm);
    return result;
  };
  net.close_listen = [&good, accepted](void* listen_comm) {
    {
      const std::lock_guard lock(accepted->mutex);
      for (void* const comm : accepted->of_listener[listen_comm]) {
        if (accepted->used.count(comm) != 0) accepted->dead.insert(comm);
      }
      accepted->of_listener.erase(listen_comm);
    }
    return good.close_listen(listen_comm);
  };
  net.irecv = [&good, accepted](void* comm, auto... arguments) {
    {
      const std::lock_guard lock(accepted->mutex);
      if (accepted->dead.count(comm) != 0) return Result::kRemoteError;
      accepted->used.insert(comm);
    }
    return good.irecv(comm, arguments...);
  };
}

// isend sends over the first connection of the process, whatever the comm.
MUTANT(one_connection_for_all,
       breaks("CN-23").also("CL-*", "CN-*", "ER-05", "ER-06", "IN-11", "MR-*", "PR-*", "TH-02", "TS-07", "XF-*")) {
  struct First {
    std::mutex mutex;
    void* comm = nullptr;
  };
  auto first = std::make_shared<First>();
  net.connect = [&good, first](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    const std::lock_guard lock(first->mutex);
    if (first->comm == nullptr) first->comm = *comm;
    return result;
  };
  net.isend = [&good, first](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (comm != first->comm) {
      const Result result = good.reg_mr(first->comm, data, size, abi::kPointerHost, &mhandle);
      if (result != Result::kSuccess) return result;
    }
    return good.isend(first->comm, data, size, tag, mhandle, request);
  };
}

}  // namespace plugfest::mutants
