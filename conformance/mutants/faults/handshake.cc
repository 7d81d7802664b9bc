// Mutants of the CN rules about arguments and outputs of connect and accept, and about many connections.
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/stopped_peer.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

/// Calls `visit(name, flags)` for each interface but lo.
template <typename Visit>
void visit_interfaces(Visit visit) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) == 0) visit(each->ifa_name, each->ifa_flags);
  }
  freeifaddrs(interfaces);
}

/// The smallest MTU of an interface, in bytes.
int smallest_mtu() {
  int smallest = 65536;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  visit_interfaces([&](const char* name, unsigned) {
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(any, SIOCGIFMTU, &request) == 0) smallest = std::min(smallest, request.ifr_mtu);
  });
  close(any);
  return smallest;
}

/// Counts open listeners.
std::shared_ptr<std::atomic<int>> count_listeners(Net& net, const Net& good) {
  auto open = std::make_shared<std::atomic<int>>(0);
  net.listen = [&good, open](auto... arguments) {
    const Result result = good.listen(arguments...);
    if (result == Result::kSuccess) ++*open;
    return result;
  };
  net.close_listen = [&good, open](void* comm) {
    --*open;
    return good.close_listen(comm);
  };
  return open;
}

}  // namespace

// Only one device can have listeners at a time.
MUTANT(one_device_listens, breaks("CN-01").also("PR-*")) {
  struct Owner {
    std::mutex mutex;
    int device = -1;
    int listeners = 0;
  };
  auto owner = std::make_shared<Owner>();
  net.listen = [&good, owner](void* context, int device, void* handle, void** comm) {
    const std::lock_guard lock(owner->mutex);
    if (owner->listeners > 0 && owner->device != device) return Result::kSystemError;
    const Result result = good.listen(context, device, handle, comm);
    if (result == Result::kSuccess) {
      owner->device = device;
      ++owner->listeners;
    }
    return result;
  };
  net.close_listen = [&good, owner](void* comm) {
    const std::lock_guard lock(owner->mutex);
    --owner->listeners;
    return good.close_listen(comm);
  };
}

// connect stores a pointer to its state as long as a peer is stopped.
MUTANT(connect_stores_its_state, breaks("CN-06", "CN-08").also("CL-*", "CN-*", "PR-*", "TS-02", "TS-07", "XF-*")) {
  auto states = std::make_shared<PointerMap<bool>>();
  net.connect = [&good, states](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm == nullptr && a_peer_is_stopped()) {
      *comm = handle;
      states->put(handle, true);
    }
    return result;
  };
  net.reg_mr = [&good, states](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    // The state is not a comm. The base plugin would crash.
    return states->find(comm) ? Result::kInvalidArgument : good.reg_mr(comm, data, size, type, mhandle);
  };
}

// isend reads the handle that connect got.
MUTANT(handle_read_after_connect, breaks("CN-05").also("PR-*")) {
  auto handles = std::make_shared<PointerMap<const volatile char*>>();
  net.connect = [&good, handles](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) handles->put(*comm, static_cast<const char*>(handle));
    return result;
  };
  net.isend = [&good, handles](void* comm, auto... arguments) {
    if (const auto handle = handles->find(comm)) static_cast<void>(**handle);
    return good.isend(comm, arguments...);
  };
  net.close_send = [&good, handles](void* comm) {
    handles->erase(comm);
    return good.close_send(comm);
  };
}

// connect over a device fails while the process has send comms over another one.
MUTANT(one_device_connects, breaks("CN-11").also("ER-05", "PR-*")) {
  auto devices = std::make_shared<PointerMap<int>>();  // by comm
  net.connect = [&good, devices](void* context, int device, void* handle, void** comm) {
    if (devices->any([device](int other) { return other != device; })) return Result::kSystemError;
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) devices->put(*comm, device);
    return result;
  };
  net.close_send = [&good, devices](void* comm) {
    devices->erase(comm);
    return good.close_send(comm);
  };
}

// A connect or accept that fails leaves a pointer in its output.
MUTANT(failed_connect_stores_a_comm, breaks("CN-12")) {
  const auto leave = [](Result result, void** comm) {
    static int comm_of_a_failed_call = 0;
    if (result != Result::kSuccess) *comm = &comm_of_a_failed_call;
    return result;
  };
  net.connect = [&good, leave](void* context, int device, void* handle, void** comm) {
    return leave(good.connect(context, device, handle, comm), comm);
  };
  net.accept = [&good, leave](void* listen_comm, void** comm) { return leave(good.accept(listen_comm, comm), comm); };
}

// closeRecv reads through its argument without a NULL check.
MUTANT(null_comm_dereferenced, breaks("CN-13")) {
  net.close_recv = [&good](void* comm) {
    static_cast<void>(*static_cast<volatile char*>(comm));
    return good.close_recv(comm);
  };
}

// closeListen of a listener that has accepted nobody ends the comm that was accepted last.
MUTANT(unused_listener_ends_a_comm, breaks("CN-17").also("PR-04", "PR-05", "PR-06")) {
  struct Accepted {
    std::mutex mutex;
    std::set<void*> used;
    void* last = nullptr;
    void* ended = nullptr;
  };
  auto accepted = std::make_shared<Accepted>();
  net.accept = [&good, accepted](void* listen_comm, void** comm) {
    const Result result = good.accept(listen_comm, comm);
    const std::lock_guard lock(accepted->mutex);
    if (result != Result::kSuccess || *comm == nullptr) return result;
    accepted->used.insert(listen_comm);
    accepted->last = *comm;
    if (accepted->ended == *comm) accepted->ended = nullptr;
    return result;
  };
  net.close_listen = [&good, accepted](void* listen_comm) {
    {
      const std::lock_guard lock(accepted->mutex);
      if (accepted->used.erase(listen_comm) == 0) accepted->ended = accepted->last;
    }
    return good.close_listen(listen_comm);
  };
  net.irecv = [&good, accepted](void* comm, auto... arguments) {
    {
      const std::lock_guard lock(accepted->mutex);
      if (comm == accepted->ended) return Result::kRemoteError;
    }
    return good.irecv(comm, arguments...);
  };
}

// listen fails when 50 listeners are open.
MUTANT(fifty_listeners_at_most, breaks("CN-18").also("PR-*")) {
  auto open = count_listeners(net, good);
  net.listen = [listen = net.listen, open](auto... arguments) {
    return *open >= 50 ? Result::kInternalError : listen(arguments...);
  };
}

// listen aborts the process when it gets no descriptor.
MUTANT(aborts_in_connect_without_descriptors, breaks("CN-18").also("ER-06")) {
  net.listen = [&good](auto... arguments) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) std::abort();
    close(listener);
    return good.listen(arguments...);
  };
}

// A listener accepts one peer.
MUTANT(one_peer_per_listener, breaks("CN-19")) {
  auto used = std::make_shared<PointerMap<bool>>();
  net.listen = [&good, used](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    if (result == Result::kSuccess) used->erase(*comm);
    return result;
  };
  net.accept = [&good, used](void* listen_comm, void** comm) {
    if (used->find(listen_comm)) return Result::kInternalError;
    const Result result = good.accept(listen_comm, comm);
    if (result == Result::kSuccess && *comm != nullptr) used->put(listen_comm, true);
    return result;
  };
}

// connect hides all errors and tries for ever.
MUTANT(connect_never_fails, breaks("CN-21")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    if (good.connect(context, device, handle, comm) != Result::kSuccess) *comm = nullptr;
    return Result::kSuccess;
  };
}

// connect holds a lock that test needs, and waits until no operation of another thread is in flight: rules that connect
// meanwhile hang.
MUTANT(connect_waits_for_transfers,
       breaks("CN-24").also("CL-*", "CN-*", "ER-*", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")) {
  auto in_flight = InFlight::watch(net, good);
  auto mutex = std::make_shared<std::mutex>();
  net.connect = [&good, in_flight, mutex](auto... arguments) {
    const std::lock_guard lock(*mutex);
    while (in_flight->used_by_another_thread(nullptr)) pause_briefly();
    return good.connect(arguments...);
  };
  net.test = [test = net.test, mutex](auto... arguments) {
    const std::lock_guard lock(*mutex);
    return test(arguments...);
  };
}

// connect refuses listeners of another context of its process.
MUTANT(context_of_listener_required, breaks("CN-25")) {
  struct Contexts {
    std::mutex mutex;
    std::map<std::array<char, abi::kHandleBytes>, void*> of_handle;
  };
  const auto bytes_of = [](const void* handle) {
    std::array<char, abi::kHandleBytes> bytes;
    std::memcpy(bytes.data(), handle, bytes.size());
    return bytes;
  };
  auto contexts = std::make_shared<Contexts>();
  net.listen = [&good, contexts, bytes_of](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    const std::lock_guard lock(contexts->mutex);
    contexts->of_handle[bytes_of(handle)] = context;
    return result;
  };
  net.connect = [&good, contexts, bytes_of](void* context, int device, void* handle, void** comm) {
    {
      const std::lock_guard lock(contexts->mutex);
      const auto found = contexts->of_handle.find(bytes_of(handle));
      if (found != contexts->of_handle.end() && found->second != context) return Result::kInvalidUsage;
    }
    return good.connect(context, device, handle, comm);
  };
}

// setNetAttr takes an undefined number of flows for a number.
MUTANT(undefined_attributes_counted, breaks("CN-26").also("TH-03", "PR-*")) {
  static std::atomic<int> flows{1};
  net.table->setNetAttr = [](void*, abi::newest::NetAttr* attributes) {
    flows = attributes->sendCommAttr.maxFlowsPerPeer;
    return Result::kSuccess;
  };
  net.connect = [&good](auto... arguments) { return flows > 0 ? good.connect(arguments...) : Result::kInternalError; };
}

// A process can connect 255 times.
MUTANT(comm_ids_run_out, breaks("CN-27").also("CN-24")) {
  auto ids = std::make_shared<std::atomic<int>>(0);
  net.connect = [&good, ids](void* context, int device, void* handle, void** comm) {
    if (*ids == 255) return Result::kInternalError;
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) ++*ids;
    return result;
  };
}

// Each connect leaves a socket open.
MUTANT(connect_leaks_a_socket, breaks("CN-27", "CL-05")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr)
      static_cast<void>(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return result;
  };
}

// closeSend fails on another thread than that of connect.
MUTANT(close_needs_the_thread_of_connect, breaks("CN-28", "CL-07").also("TH-04")) {
  auto threads = std::make_shared<PointerMap<std::thread::id>>();
  net.connect = [&good, threads](void* context, int device, void* handle, void** comm) {
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) threads->put(*comm, std::this_thread::get_id());
    return result;
  };
  net.close_send = [&good, threads](void* comm) {
    const auto thread = threads->find(comm);
    return thread && *thread != std::this_thread::get_id() ? Result::kInternalError : good.close_send(comm);
  };
}

// An accept that is not finished returns ncclInProgress.
MUTANT(accept_returns_in_progress, breaks("CN-30", "ER-01")) {
  net.accept = [&good](void* listen_comm, void** comm) {
    const Result result = good.accept(listen_comm, comm);
    return result == Result::kSuccess && *comm == nullptr ? Result::kInProgress : result;
  };
}

// maxRecvs depends on the adapter.
MUTANT(max_recvs_of_the_adapter, breaks("CN-31").also("XF-27")) {
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    const std::uint64_t mixed = properties->guid * 0x9e3779b97f4a7c15ull;
    properties->maxRecvs = 1 + static_cast<int>(mixed >> 32 & 0x3f) % properties->maxRecvs;
    return result;
  };
}

// Sends of more than 4 KiB never complete at a host with an MTU below 1500.
MUTANT(small_mtu_stalls, breaks("CN-33")) {
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.isend = [&good, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    static const bool stalls = smallest_mtu() < 1500;
    if (!stalls || size <= 4096) return good.isend(comm, data, size, tag, mhandle, request);
    *request = held_requests->hold([](void** real) {
      *real = nullptr;
      return Result::kSuccess;
    });
    return Result::kSuccess;
  };
}

}  // namespace plugfest::mutants
