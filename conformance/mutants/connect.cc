// Mutants of the CN rules.
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "conformance/mutants/held_request.h"
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

// listen writes one byte behind the handle.
MUTANT(handle_of_129_bytes, breaks("CN-02")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    static_cast<volatile char*>(handle)[abi::kHandleBytes] = 1;
    return result;
  };
}

// listen stores a pointer in the handle, and connect follows it.
MUTANT(handle_holds_a_pointer, breaks("CN-04")) {
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
MUTANT(connect_waits_for_accept, breaks("CN-06", "CN-09")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    Result result = Result::kSuccess;
    do {
      result = good.connect(context, device, handle, comm);
    } while (result == Result::kSuccess && *comm == nullptr);
    return result;
  };
}

// accept waits until a peer connects.
MUTANT(accept_waits_for_connect, breaks("CN-07")) {
  net.accept = [&good](void* listen_comm, void** comm) {
    Result result = Result::kSuccess;
    do {
      result = good.accept(listen_comm, comm);
    } while (result == Result::kSuccess && *comm == nullptr);
    return result;
  };
}

// Two listeners that are open at the same time accept each other's peers.
MUTANT(listeners_swapped, breaks("CN-09")) {
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

// connect refuses handles of its own process.
MUTANT(connection_to_itself_refused, breaks("CN-10")) {
  struct Own {
    std::mutex mutex;
    std::set<HandleBytes> handles;
  };
  auto own = std::make_shared<Own>();
  net.listen = [&good, own](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    const std::lock_guard lock(own->mutex);
    own->handles.insert(copy_of(handle));
    return result;
  };
  net.connect = [&good, own](void* context, int device, void* handle, void** comm) {
    {
      const std::lock_guard lock(own->mutex);
      if (own->handles.count(copy_of(handle)) != 0) return Result::kInvalidUsage;
    }
    return good.connect(context, device, handle, comm);
  };
}

// isend drops empty messages to the process itself.
MUTANT(empty_message_to_itself_dropped, breaks("CN-10")) {
  struct Own {
    std::mutex mutex;
    std::set<HandleBytes> handles;
    std::set<void*> connecting;  // handles in the memory of the caller, which connect may change
    std::set<void*> comms;
  };
  auto own = std::make_shared<Own>();
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.listen = [&good, own](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    const std::lock_guard lock(own->mutex);
    own->handles.insert(copy_of(handle));
    return result;
  };
  net.connect = [&good, own](void* context, int device, void* handle, void** comm) {
    const std::lock_guard lock(own->mutex);
    if (own->handles.count(copy_of(handle)) != 0) own->connecting.insert(handle);
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr && own->connecting.erase(handle) != 0) own->comms.insert(*comm);
    return result;
  };
  net.isend = [&good, own, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle,
                                          void** request) {
    const std::lock_guard lock(own->mutex);
    if (size != 0 || own->comms.count(comm) == 0) return good.isend(comm, data, size, tag, mhandle, request);
    *request = held_requests->hold({});
    return Result::kSuccess;
  };
}

// closeListen breaks the comms that the listener accepted.
MUTANT(closed_listener_breaks_comms, breaks("CN-15")) {
  struct Accepted {
    std::mutex mutex;
    std::map<void*, std::set<void*>> of_listener;
    std::set<void*> dead;
  };
  auto accepted = std::make_shared<Accepted>();
  net.accept = [&good, accepted](void* listen_comm, void** comm) {
    const Result result = good.accept(listen_comm, comm);
    const std::lock_guard lock(accepted->mutex);
    if (result != Result::kSuccess || *comm == nullptr) return result;
    accepted->of_listener[listen_comm].insert(*comm);
    accepted->dead.erase(*comm);
    return result;
  };
  net.close_listen = [&good, accepted](void* listen_comm) {
    {
      const std::lock_guard lock(accepted->mutex);
      accepted->dead.merge(accepted->of_listener[listen_comm]);
      accepted->of_listener.erase(listen_comm);
    }
    return good.close_listen(listen_comm);
  };
  net.irecv = [&good, accepted](void* comm, auto... arguments) {
    {
      const std::lock_guard lock(accepted->mutex);
      if (accepted->dead.count(comm) != 0) return Result::kRemoteError;
    }
    return good.irecv(comm, arguments...);
  };
}

// isend sends over the first connection of the process, whatever the comm.
MUTANT(one_connection_for_all, breaks("CN-23")) {
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
