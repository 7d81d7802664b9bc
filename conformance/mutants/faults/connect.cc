// Mutants of the CN rules about handles, calls that wait for a peer, and the listener to which a comm belongs.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "conformance/mutants/faults/peers.h"
#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// listen writes 129 bytes into a handle that is not zeroed.
MUTANT(handle_of_129_bytes, breaks("CN-02", "CN-03")) {
  net.listen = [&good](Listen listen) {
    auto* const bytes = static_cast<volatile char*>(listen.handle);
    const bool zeroed = bytes[abi::kHandleBytes - 1] == 0;
    const Result result = good.listen(listen);
    if (!zeroed) bytes[abi::kHandleBytes] = 1;
    return result;
  };
}

// listen returns a valid handle only if the caller zeroed it.
MUTANT(handle_must_be_zeroed, breaks("CN-03")) {
  net.listen = [&good](Listen listen) {
    auto* const bytes = static_cast<unsigned char*>(listen.handle);
    const bool zeroed = std::all_of(bytes, bytes + abi::kHandleBytes, [](unsigned char byte) { return byte == 0; });
    const Result result = good.listen(listen);
    if (!zeroed) std::reverse(bytes, bytes + abi::kHandleBytes);
    return result;
  };
}

// connect expects its state, the last byte of the handle, to be 0, and listen does not write that byte.
MUTANT(connect_state_not_reset, breaks("CN-03")) {
  const auto state = [](void* handle) -> unsigned char& {
    return static_cast<unsigned char*>(handle)[abi::kHandleBytes - 1];
  };
  net.listen = [&good, state](Listen listen) {
    const unsigned char before = state(listen.handle);
    const Result result = good.listen(listen);
    state(listen.handle) = before;
    return result;
  };
  refuse(net.connect, Result::kInternalError, [state](Connect connect) { return state(connect.handle) != 0; });
}

// listen stores a pointer in the handle, and connect follows it.
MUTANT(handle_holds_a_pointer,
       breaks("CN-04")
           .also("CL-*", "CN-*", "DP-20", "ER-*", "FL-06", "FL-07", "IN-*", "LD-05", "LD-11", "MR-*", "PR-*", "TH-*",
                 "TS-*", "XF-*")
           .because("each connection between two processes follows an address of the other one")) {
  net.listen = [&good](Listen listen) {
    void* const handle = std::exchange(listen.handle, new HandleBytes{});
    const Result result = good.listen(listen);
    std::memset(handle, 0, abi::kHandleBytes);
    std::memcpy(handle, &listen.handle, sizeof listen.handle);
    return result;
  };
  before(net.connect, [](Connect& connect) { std::memcpy(&connect.handle, connect.handle, sizeof connect.handle); });
}

// connect waits until the peer has accepted.
MUTANT(connect_waits_for_accept,
       breaks("CN-06", "CN-09").also("*").because("each connection calls connect before accept is done")) {
  after(net.connect, [&good](Connect connect, Result result) {
    while (result == Result::kSuccess && *connect.comm == nullptr) result = good.connect(connect);
    return result;
  });
}

// When the peer has answered, connect waits for a heartbeat of the peer.
MUTANT(connect_waits_after_the_answer, breaks("CN-06")) {
  Heartbeats& heartbeats = Heartbeats::watch(net);
  on_success(net.connect, [&](Connect connect) { heartbeats.wait_for_peer(*connect.comm, kReceiver); });
}

// Each connect waits for a heartbeat of the listening process.
MUTANT(connect_waits_for_stopped_peer, breaks("CN-06").also("CN-08")) {
  Heartbeats& heartbeats = Heartbeats::watch(net);
  before(net.connect, [&](Connect connect) { heartbeats.wait_for_listener(connect.handle); });
}

// Two listeners that are open at the same time accept each other's peers.
MUTANT(listeners_swapped, breaks("CN-09")
                              .also("CN-*", "ER-03", "ER-06", "PR-*")
                              .because("each rule with two listeners may connect the wrong endpoints")) {
  struct Pairs {
    std::mutex mutex;
    void* single = nullptr;           // an open listener without a partner
    std::map<void*, void*> partners;  // contains each pair twice, once per direction
  };
  auto& pairs = kept<Pairs>();
  on_success(net.listen, [&](Listen listen) {
    const std::lock_guard lock(pairs.mutex);
    if (pairs.single == nullptr) {
      pairs.single = *listen.comm;
    } else {
      pairs.partners[pairs.single] = *listen.comm;
      pairs.partners[*listen.comm] = std::exchange(pairs.single, nullptr);
    }
  });
  before(net.accept, [&](Accept& accept) {
    const std::lock_guard lock(pairs.mutex);
    const auto partner = pairs.partners.find(accept.listener);
    if (partner != pairs.partners.end()) accept.listener = partner->second;
  });
  before(net.close_listen, [&](void* listener) {
    const std::lock_guard lock(pairs.mutex);
    if (pairs.single == listener) pairs.single = nullptr;
    const auto partner = pairs.partners.find(listener);
    if (partner == pairs.partners.end()) return;
    pairs.partners.erase(partner->second);
    pairs.partners.erase(listener);
  });
}

// connect refuses handles of its own process.
MUTANT(connection_to_itself_refused, breaks("CN-10").also("LD-11", "CN-19")) { refuse_connections_to_itself(net); }

// isend drops empty messages of a process to itself.
MUTANT(empty_message_to_itself_dropped, breaks("CN-10")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  PointerSet& comms = comms_to_itself(net);
  net.isend = [&](Send send) {
    if (send.size != 0 || !comms.contains(send.comm)) return good.isend(send);
    *send.request = held_requests.done();
    return Result::kSuccess;
  };
}

// isend refuses empty messages of a process to itself.
MUTANT(empty_message_to_itself_refused, breaks("CN-10")) {
  PointerSet& comms = comms_to_itself(net);
  refuse(net.isend, Result::kInvalidArgument, [&](Send send) { return send.size == 0 && comms.contains(send.comm); });
}

// connect and accept write through the device handle without a NULL check.
MUTANT(null_device_handle_dereferenced, breaks("CN-14")) {
  net.before_device_handle = [](abi::DeviceHandle** device_handle) {
    abi::DeviceHandle* volatile* const slot = device_handle;
    *slot = nullptr;
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
  auto& accepted = kept<Accepted>();
  on_success(net.accept, [&](Accept accept) {
    const std::lock_guard lock(accepted.mutex);
    accepted.of_listener[accept.listener].insert(*accept.comm);
    accepted.used.erase(*accept.comm);
    accepted.dead.erase(*accept.comm);
  });
  before(net.close_listen, [&](void* listener) {
    const std::lock_guard lock(accepted.mutex);
    for (void* const comm : accepted.of_listener[listener]) {
      if (accepted.used.count(comm) != 0) accepted.dead.insert(comm);
    }
    accepted.of_listener.erase(listener);
  });
  refuse(net.irecv, Result::kRemoteError, [&](Receive receive) {
    const std::lock_guard lock(accepted.mutex);
    accepted.used.insert(receive.comm);
    return accepted.dead.count(receive.comm) != 0;
  });
}

// listen leaks one file descriptor per call.
MUTANT(listen_leaks_a_descriptor, breaks("CN-16").also("CL-05", "CN-27", "ER-12")) {
  before(net.listen, [](Listen) { open("/dev/null", O_RDONLY | O_CLOEXEC); });
}

// listen leaks 16 KiB per call.
MUTANT(listen_leaks_memory, breaks("CN-16").also("CN-27", "CL-05")) {
  before(net.listen, [](Listen) { leak(16384); });
}

// accept fails when an untrusted client connects to a TCP socket of the listener.
MUTANT(untrusted_connection_fails_accept, breaks("CN-22")) {
  auto& sockets = kept<PointerMap<int>>();
  on_success(net.listen, [&](Listen listen) {
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) ::listen(listening, 4);
    sockets.put(*listen.comm, listening);
  });
  refuse(net.accept, Result::kSystemError, [&](Accept accept) {
    const int client = ::accept(sockets.find(accept.listener).value_or(-1), nullptr, nullptr);
    if (client >= 0) close(client);
    return client >= 0;
  });
  before(net.close_listen, [&](void* listener) {
    if (const auto listening = sockets.take(listener)) close(*listening);
  });
}

// isend sends over the first connection of the process, regardless of the comm.
MUTANT(one_connection_for_all,
       breaks("CN-23")
           .also("CL-*", "CN-*", "ER-05", "ER-06", "IN-11", "MR-*", "PR-*", "TH-02", "TS-07", "XF-*", "ER-12")
           .because("each rule with two connections may use one for both")) {
  static std::atomic<void*> first{nullptr};
  on_success(net.connect, [](Connect connect) {
    void* none = nullptr;
    first.compare_exchange_strong(none, *connect.comm);
  });
  net.isend = [&](Send send) {
    if (std::exchange(send.comm, first) != first) {
      const Result result = good.reg_mr({first, send.data, send.size, abi::kPointerHost, &send.mhandle});
      if (result != Result::kSuccess) return result;
    }
    return good.isend(send);
  };
}

}  // namespace plugfest::mutants
