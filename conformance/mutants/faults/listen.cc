// Mutants of the CN rules about listeners, handles, early sends and untrusted connections.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// listen returns a valid handle only if the caller zeroed it.
MUTANT(handle_must_be_zeroed, breaks("CN-03")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    auto* const bytes = static_cast<unsigned char*>(handle);
    const bool zeroed = std::all_of(bytes, bytes + abi::kHandleBytes, [](unsigned char byte) { return byte == 0; });
    const Result result = good.listen(context, device, handle, comm);
    if (!zeroed) std::reverse(bytes, bytes + abi::kHandleBytes);
    return result;
  };
}

// connect and accept write through the device handle without a NULL check.
MUTANT(null_device_handle_dereferenced, breaks("CN-14")) {
  net.before_device_handle = [](abi::DeviceHandle** device_handle) {
    abi::DeviceHandle* volatile* const slot = device_handle;
    *slot = nullptr;
  };
}

// listen leaks one file descriptor per call.
MUTANT(listen_leaks_a_descriptor, breaks("CN-16").also("CL-05", "CN-27")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    open("/dev/null", O_RDONLY | O_CLOEXEC);
    return good.listen(context, device, handle, comm);
  };
}

// accept fails when an untrusted client connects to a TCP socket of the listener.
MUTANT(untrusted_connection_fails_accept, breaks("CN-22")) {
  auto sockets = std::make_shared<PointerMap<int>>();
  net.listen = [&good, sockets](void* context, int device, void* handle, void** comm) {
    const Result result = good.listen(context, device, handle, comm);
    if (result != Result::kSuccess) return result;
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) ::listen(listening, 4);
    sockets->put(*comm, listening);
    return result;
  };
  net.accept = [&good, sockets](void* listen_comm, void** comm) {
    const int client = ::accept(sockets->find(listen_comm).value_or(-1), nullptr, nullptr);
    if (client >= 0) {
      close(client);
      return Result::kSystemError;
    }
    return good.accept(listen_comm, comm);
  };
  net.close_listen = [&good, sockets](void* listen_comm) {
    if (const auto listening = sockets->find(listen_comm)) close(*listening);
    sockets->erase(listen_comm);
    return good.close_listen(listen_comm);
  };
}

}  // namespace plugfest::mutants
