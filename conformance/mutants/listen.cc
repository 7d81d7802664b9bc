// Mutants of the CN rules about listeners and early sends.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// Gives a handle that is right only if the buffer was zeroed.
MUTANT(handle_wants_zeroes, breaks("CN-03")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    auto* const bytes = static_cast<unsigned char*>(handle);
    const bool zeroed = std::all_of(bytes, bytes + abi::kHandleBytes, [](unsigned char byte) { return byte == 0; });
    const Result result = good.listen(context, device, handle, comm);
    if (!zeroed) std::reverse(bytes, bytes + abi::kHandleBytes);
    return result;
  };
}

// Writes through the device handle without a look at the pointer.
MUTANT(device_handle_taken_for_granted, breaks("CN-14")) {
  net.see_device_handle = [](abi::DeviceHandle** device_handle) {
    abi::DeviceHandle* volatile* const slot = device_handle;
    *slot = nullptr;
  };
}

// Keeps a file open for each listener.
MUTANT(a_file_stays_open_for_each_listener, breaks("CN-16")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    open("/dev/null", O_RDONLY | O_CLOEXEC);
    return good.listen(context, device, handle, comm);
  };
}

// Loses the first message of every connection.
MUTANT(first_message_lost, breaks("CN-20")) {
  auto held_requests = std::make_shared<HeldRequests>();
  auto begun = std::make_shared<Ledger<bool>>();
  held_requests->install(net, good);
  net.isend = [&good, held_requests, begun](void* comm, void* data, std::size_t size, int tag, void* mhandle,
                                            void** request) {
    if (begun->find(comm)) return good.isend(comm, data, size, tag, mhandle, request);
    begun->put(comm, true);
    *request = held_requests->hold({});
    return Result::kSuccess;
  };
  net.close_send = [&good, begun](void* comm) {
    begun->erase(comm);
    return good.close_send(comm);
  };
}

// Takes whoever knocks for its peer, and what he says for a broken protocol.
MUTANT(strangers_break_accept, breaks("CN-22")) {
  auto doors = std::make_shared<Ledger<int>>();
  net.listen = [&good, doors](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    if (result != Result::kSuccess) return result;
    const int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(door, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) ::listen(door, 4);
    doors->put(*comm, door);
    return result;
  };
  net.accept = [&good, doors](void* listen_comm, void** comm) {
    const int visitor = ::accept(doors->find(listen_comm).value_or(-1), nullptr, nullptr);
    if (visitor >= 0) {
      close(visitor);
      return Result::kSystemError;
    }
    return good.accept(listen_comm, comm);
  };
  net.close_listen = [&good, doors](void* listen_comm) {
    if (const auto door = doors->find(listen_comm)) close(*door);
    doors->erase(listen_comm);
    return good.close_listen(listen_comm);
  };
}

}  // namespace plugfest::mutants
