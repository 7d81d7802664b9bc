// The function table that NCCL looks up: net v8, one buffer per receive.

#include "device.h"
#include "handshake.h"
#include "harness/abi/net.h"
#include "stream.h"

namespace {

using example::Handle;
using example::Listener;
using example::Registration;
using example::Request;
using example::Role;
using example::Stream;
using plugfest::abi::Result;
using plugfest::abi::v8::Net;
using plugfest::abi::v8::Properties;

const example::Device* device(int index) {
  const auto& all = example::devices();
  return index < 0 || static_cast<std::size_t>(index) >= all.size() ? nullptr : &all[static_cast<std::size_t>(index)];
}

plugfest::abi::Logger logger = nullptr;

// NCCL shows the line with NCCL_DEBUG=WARN.
void warn(const char* text) {
  if (logger != nullptr) logger(plugfest::abi::kLogWarn, ~0UL, __FILE__, __LINE__, "NET/example: %s", text);
}

Result init(plugfest::abi::Logger given) {
  logger = given;
  return Result::kSuccess;
}

Result count_devices(int* count) {
  *count = static_cast<int>(example::devices().size());
  return Result::kSuccess;
}

Result get_properties(int index, Properties* properties) {
  const example::Device* const found = device(index);
  if (found == nullptr) return Result::kInvalidArgument;
  *properties = {};
  properties->name = const_cast<char*>(found->name.c_str());
  properties->guid = found->address.s_addr;
  properties->ptrSupport = plugfest::abi::kPointerHost;
  properties->speed = 10000;
  properties->maxComms = 65536;
  properties->maxRecvs = 1;
  return Result::kSuccess;
}

Result listen(int index, void* handle, void** listen_comm) {
  const example::Device* const found = device(index);
  if (found == nullptr) return Result::kInvalidArgument;
  *listen_comm = Listener::open(found->address, static_cast<Handle*>(handle));
  return *listen_comm == nullptr ? Result::kSystemError : Result::kSuccess;
}

Result connect(int index, void* handle, void** send_comm, plugfest::abi::DeviceHandle** /*device_handle*/) {
  const example::Device* const found = device(index);
  *send_comm = nullptr;
  if (found == nullptr) return Result::kInvalidArgument;
  int socket = -1;
  if (!example::connect_step(found->address, static_cast<Handle*>(handle), &socket)) return Result::kRemoteError;
  if (socket >= 0) *send_comm = new Stream(socket, Role::kSends);
  return Result::kSuccess;
}

Result accept(void* listen_comm, void** recv_comm, plugfest::abi::DeviceHandle** /*device_handle*/) {
  const auto socket = static_cast<Listener*>(listen_comm)->accept();
  *recv_comm = socket ? new Stream(*socket, Role::kReceives) : nullptr;
  return Result::kSuccess;
}

Result reg_mr(void* comm, void* /*data*/, std::size_t /*size*/, int type, void** mhandle) {
  if (type != plugfest::abi::kPointerHost) return Result::kInvalidArgument;
  *mhandle = new Registration{static_cast<Stream*>(comm)};
  return Result::kSuccess;
}

Result dereg_mr(void* comm, void* mhandle) {
  static_cast<Stream*>(comm)->forget(static_cast<Registration*>(mhandle));
  delete static_cast<Registration*>(mhandle);
  return Result::kSuccess;
}

Result post(void* comm, void* data, int size, void* mhandle, void** request) {
  *request = nullptr;
  if (size < 0) return Result::kInvalidArgument;
  *request = static_cast<Stream*>(comm)->post(static_cast<std::byte*>(data), static_cast<std::size_t>(size),
                                              static_cast<Registration*>(mhandle));
  return Result::kSuccess;
}

Result isend(void* comm, void* data, int size, int /*tag*/, void* mhandle, void** request) {
  return post(comm, data, size, mhandle, request);
}

Result irecv(void* comm, int n, void** data, int* sizes, int* /*tags*/, void** mhandles, void** request) {
  *request = nullptr;
  return n == 1 ? post(comm, data[0], sizes[0], mhandles[0], request) : Result::kInvalidArgument;
}

// Host memory needs no flush.
Result iflush(void* /*comm*/, int /*n*/, void** /*data*/, int* /*sizes*/, void** /*mhandles*/, void** request) {
  *request = nullptr;
  return Result::kSuccess;
}

Result test(void* request, int* done, int* sizes) {
  if (request == nullptr) return Result::kInvalidArgument;
  auto* const posted = static_cast<Request*>(request);
  bool finished = false;
  std::size_t size = 0;
  const bool alive = posted->stream->test(posted, &finished, &size);
  *done = finished ? 1 : 0;
  if (finished && sizes != nullptr) sizes[0] = static_cast<int>(size);
  if (!alive) warn("the peer is gone");
  return alive ? Result::kSuccess : Result::kRemoteError;
}

Result close_stream(void* comm) {
  delete static_cast<Stream*>(comm);
  return Result::kSuccess;
}

Result close_listener(void* comm) {
#ifndef EXAMPLE_BUG  // only in the example: the tutorial's fault, the socket stays open
  delete static_cast<Listener*>(comm);
#endif  // only in the example
  return Result::kSuccess;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Net ncclNetPlugin_v8;
Net ncclNetPlugin_v8 = {"Example",    init,         count_devices,  get_properties, listen, connect, accept,
                        reg_mr,       nullptr,      dereg_mr,       isend,          irecv,  iflush,  test,
                        close_stream, close_stream, close_listener, nullptr,        nullptr};
