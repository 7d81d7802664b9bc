// Mutants of CN and CL rules: state of a handle, a device that connects to itself, waits for a stopped peer.
#include <time.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/stopped_peer.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

void wait_while_a_peer_is_stopped() {
  while (a_peer_is_stopped()) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

// connect expects 0 in the last byte of the handle, its state, which listen does not write.
MUTANT(connect_state_not_reset, breaks("CN-03")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    auto* const bytes = static_cast<unsigned char*>(handle);
    const unsigned char before = bytes[abi::kHandleBytes - 1];
    const Result result = good.listen(context, device, handle, comm);
    bytes[abi::kHandleBytes - 1] = before;
    return result;
  };
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    if (static_cast<unsigned char*>(handle)[abi::kHandleBytes - 1] != 0) return Result::kInternalError;
    return good.connect(context, device, handle, comm);
  };
}

// connect waits while any rank is stopped.
MUTANT(connect_waits_for_stopped_peer, breaks("CN-06").also("CN-08")) {
  net.connect = [&good](void* context, int device, void* handle, void** comm) {
    wait_while_a_peer_is_stopped();
    return good.connect(context, device, handle, comm);
  };
}

// closeRecv waits while any rank is stopped.
MUTANT(close_recv_waits_for_stopped_peer, breaks("CL-01").also("CL-09", "CL-12")) {
  net.close_recv = [&good](void* comm) {
    wait_while_a_peer_is_stopped();
    return good.close_recv(comm);
  };
}

// isend refuses empty messages of a process to itself.
MUTANT(empty_message_to_itself_refused, breaks("CN-10")) {
  struct Own {
    std::mutex mutex;
    std::set<std::string> handles;
    std::set<void*> comms;
  };
  auto own = std::make_shared<Own>();
  auto bytes_of = [](void* handle) { return std::string(static_cast<char*>(handle), 32); };
  net.listen = [=, &good](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    const std::lock_guard lock(own->mutex);
    own->handles.insert(bytes_of(handle));
    return result;
  };
  net.connect = [=, &good](void* context, int device, void* handle, void** comm) {
    const std::string start = bytes_of(handle);
    const Result result = good.connect(context, device, handle, comm);
    const std::lock_guard lock(own->mutex);
    if (result == Result::kSuccess && *comm != nullptr && own->handles.count(start) != 0) own->comms.insert(*comm);
    return result;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    {
      const std::lock_guard lock(own->mutex);
      if (size == 0 && own->comms.count(comm) != 0) return Result::kInvalidArgument;
    }
    return good.isend(comm, data, size, tag, mhandle, request);
  };
  net.close_send = [=, &good](void* comm) {
    {
      const std::lock_guard lock(own->mutex);
      own->comms.erase(comm);
    }
    return good.close_send(comm);
  };
}

}  // namespace plugfest::mutants
