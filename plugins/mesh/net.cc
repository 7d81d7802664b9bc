// Checks arguments and turns exceptions into result codes and log lines.
#include "plugins/mesh/net.h"

#include <algorithm>

#include "plugins/mesh/guard.h"
#include "plugins/mesh/state.h"
#include "plugins/mesh/transfer/comm.h"

namespace mesh::net {
namespace {

// Checks like `require`, but returns the error instead of throwing it. For the data path.
Result check_pointer(const void* pointer, const char* what) noexcept {
  if (pointer != nullptr) return Result::kSuccess;
  MESH_WARN("%s is NULL", what);
  return Result::kInvalidArgument;
}

std::span<std::uint8_t, kHandleBytes> bytes_of(void* handle) {
  return std::span<std::uint8_t, kHandleBytes>(static_cast<std::uint8_t*>(handle), kHandleBytes);
}

// Continues the attempt that the handle names, or starts one. Writes its number to the handle unless it is finished.
void step_connection(const void* context, int device, void* handle, void** send_comm, const Transport& transport) {
  const std::span<std::uint8_t, kHandleBytes> bytes = bytes_of(handle);
  Handle decoded = decode_handle(bytes);
  State& state = State::get();
  NetDevice requested = state.device(device);

  std::uint64_t number = read_attempt(bytes);
  write_attempt(bytes, 0);  // stays if this call fails
  std::unique_ptr<Connector> connector = number != 0 ? state.attempts().take(number, decoded.secret) : nullptr;
  if (!connector) {
    number = Attempts::make_number();
    connector = std::make_unique<Connector>(state.devices(), std::move(requested.nics), std::move(decoded), transport,
                                            state.relay());
  }
  if (std::unique_ptr<SendComm> comm = connector->step()) {
    *send_comm = static_cast<Comm*>(comm.release());
    return;
  }
  state.attempts().put(number, context, std::move(connector));
  write_attempt(bytes, number);
}

void close_comm(void* comm) {
  if (comm == nullptr) return;  // NCCL closes the NULL comm of a failed connect
  const std::unique_ptr<Comm> owned(static_cast<Comm*>(comm));
  owned->close();
}

[[gnu::destructor]] void at_unload() { close_everything(); }

}  // namespace

Result init(void** context, std::uint64_t /*communicator*/, CommConfig* config, abi::Logger logger,
            abi::ProfilerCallback profiler) noexcept {
  set_logger(logger);
  return guarded([&] {
    require(context, "init: ctx");
    *context = nullptr;
    *context = State::get().open(config != nullptr ? config->trafficClass : abi::kTrafficClassUndefined, profiler);
  });
}

Result init_for_good(abi::Logger logger, abi::ProfilerCallback profiler) noexcept {
  set_logger(logger);
  return guarded([&] { State::get().open_for_good(profiler); });
}

Result finalize(void* context) noexcept {
  return guarded([&] { State::get().close(context); });
}

Result set_net_attr(void* context, NetAttr* attributes) noexcept {
  return guarded([&] {
    if (attributes == nullptr) return;
    const abi::newest::CommAttr& attr = attributes->sendCommAttr;
    State::get().set_plan(context, {.peers = attr.maxConcurrentPeers, .flows = attr.maxFlowsPerPeer});
  });
}

Result devices(int* count) noexcept {
  return guarded([&] {
    require(count, "devices: ndev");
    *count = static_cast<int>(State::get().device_count());
  });
}

Result get_properties(int index, Properties* properties) noexcept {
  return guarded([&] {
    require(properties, "getProperties: props");
    State& state = State::get();
    const NetDevice device = state.device(index);
    const Device& nic = *device.first_nic;
    *properties = {};
    properties->name = state.keep(device.name);
    properties->pciPath = nic.pci_path().empty() ? nullptr : state.keep(nic.pci_path());
    properties->guid = nic.guid();
    properties->ptrSupport = state.gpu().pointer_support();
    properties->regIsGlobal = 1;
    properties->forceFlush = 0;
    properties->speed = device.speed_mbps;
    properties->port = nic.port();
    properties->latency = 0;
    properties->maxComms = static_cast<int>(kMaxComms);
    properties->maxRecvs = kMaxGroup;
    properties->netDeviceType = abi::kDeviceHost;
    properties->netDeviceVersion = abi::kDeviceInvalidVersion;
    properties->vProps.ndevs = static_cast<int>(device.nics.size());
    std::copy(device.nics.begin(), device.nics.end(), properties->vProps.devs);
    properties->maxP2pBytes = abi::kMaxNetSizeBytes;
    properties->maxCollBytes = abi::kMaxNetSizeBytes;
    properties->maxMultiRequestSize = 1;
    properties->railId = abi::kIdUndefined;
    properties->planeId = abi::kIdUndefined;
  });
}

Result make_vdevice(int* device, VDevice* members) noexcept {
  return guarded([&] {
    require(device, "makeVDevice: d");
    require(members, "makeVDevice: props");
    if (members->ndevs < 1 || members->ndevs > abi::kMaxVDeviceMembersV12)
      throw Failure(Result::kInvalidUsage, "makeVDevice: " + std::to_string(members->ndevs) +
                                               " devices cannot be merged, only 1 to " +
                                               std::to_string(abi::kMaxVDeviceMembersV12));
    *device = State::get().merge({members->devs, members->devs + members->ndevs});
  });
}

Result listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  return guarded([&] {
    require(listen_comm, "listen: listenComm");
    *listen_comm = nullptr;
    require(handle, "listen: handle");
    State& state = State::get();
    NetDevice requested = state.device(device);
    Handle contents;
    Listener& listener =
        state.listeners().add(state.devices(), std::move(requested.nics), state.transport(context), contents);
    encode_handle(contents, bytes_of(handle));
    *listen_comm = &listener;
  });
}

Result connect(void* context, int device, void* handle, void** send_comm,
               abi::DeviceHandle** /*device_comm*/) noexcept {
  return guarded([&] {
    require(send_comm, "connect: sendComm");
    *send_comm = nullptr;
    require(handle, "connect: handle");
    step_connection(context, device, handle, send_comm, State::get().transport(context));
  });
}

Result connect_with(int device, const CommConfig* config, void* handle, void** send_comm) noexcept {
  return guarded([&] {
    require(send_comm, "connect: sendComm");
    *send_comm = nullptr;
    require(handle, "connect: handle");
    const int traffic_class = config != nullptr ? config->trafficClass : abi::kTrafficClassUndefined;
    step_connection(nullptr, device, handle, send_comm, State::get().transport_with(traffic_class));
  });
}

Result accept(void* listen_comm, void** recv_comm, abi::DeviceHandle** /*device_comm*/) noexcept {
  return guarded([&] {
    require(recv_comm, "accept: recvComm");
    *recv_comm = nullptr;
    *recv_comm = static_cast<Comm*>(State::get().listeners().accept(listen_comm).release());
  });
}

Result reg_mr(void* comm, void* data, std::size_t size, int type, void** memory) noexcept {
  return guarded([&] {
    require(memory, "regMr: mhandle");
    *memory = nullptr;
    require(comm, "regMr: comm");
    State::get().with_memory(data, size, type, [&](const MemoryToRegister& range) {
      *memory = static_cast<Comm*>(comm)->add_memory(range);
    });
  });
}

Result reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                      void** memory) noexcept {
  return guarded([&] {
    require(memory, "regMrDmaBuf: mhandle");
    *memory = nullptr;
    require(comm, "regMrDmaBuf: comm");
    if (descriptor < 0) throw Failure(Result::kInvalidArgument, "regMrDmaBuf: the descriptor is negative");
    *memory = static_cast<Comm*>(comm)->add_memory({.data = data,
                                                    .bytes = size,
                                                    .of_gpu = type == abi::kPointerCuda,
                                                    .dma_buf = descriptor,
                                                    .dma_buf_offset = offset});
  });
}

Result dereg_mr(void* comm, void* memory) noexcept {
  return guarded([&] {
    require(comm, "deregMr: comm");
    if (memory != nullptr) static_cast<Comm*>(comm)->remove_memory(static_cast<Registration*>(memory));
  });
}

Result isend(void* send_comm, void* data, std::size_t size, int tag, void* memory, void* profiler_handle,
             void** request) noexcept {
  if (const Result bad = check_pointer(request, "isend: request"); bad != Result::kSuccess) return bad;
  *request = nullptr;
  if (const Result bad = check_pointer(send_comm, "isend: sendComm"); bad != Result::kSuccess) return bad;
  return guarded([&] {
    auto* comm = static_cast<SendComm*>(static_cast<Comm*>(send_comm));
    return comm->send(data, size, tag, static_cast<const Registration*>(memory), profiler_handle, request);
  });
}

Result irecv(void* recv_comm, int count, void** data, std::size_t* sizes, int* tags, void** memory,
             void** profiler_handles, void** request) noexcept {
  if (const Result bad = check_pointer(request, "irecv: request"); bad != Result::kSuccess) return bad;
  *request = nullptr;
  if (const Result bad = check_pointer(recv_comm, "irecv: recvComm"); bad != Result::kSuccess) return bad;
  return guarded([&] {
    auto* comm = static_cast<RecvComm*>(static_cast<Comm*>(recv_comm));
    return comm->receive(count, data, sizes, tags, memory, profiler_handles, request);
  });
}

Result iflush(void* recv_comm, int count, void** data, int* sizes, void** memory, void** request) noexcept {
  if (const Result bad = check_pointer(request, "iflush: request"); bad != Result::kSuccess) return bad;
  *request = nullptr;
  if (const Result bad = check_pointer(recv_comm, "iflush: recvComm"); bad != Result::kSuccess) return bad;
  return guarded([&] {
    return static_cast<RecvComm*>(static_cast<Comm*>(recv_comm))->flush(count, data, sizes, memory, request);
  });
}

Result test(void* request, int* done, int* sizes) noexcept {
  if (const Result bad = check_pointer(done, "test: done"); bad != Result::kSuccess) return bad;
  *done = 0;
  const std::optional<RequestId> id = RequestId::from(request);
  Comm* comm = id ? Comm::of(*id) : nullptr;
  if (comm == nullptr) {
    MESH_WARN("test: the request is not outstanding");
    return Result::kInvalidArgument;
  }
  return guarded([&] { return comm->test(*id, done, sizes); });
}

// The plugin keeps no state of completed receives.
Result irecv_consumed(void* /*recv_comm*/, int /*count*/, void* /*request*/) noexcept { return Result::kSuccess; }

Result close_send(void* send_comm) noexcept {
  return guarded([&] { close_comm(send_comm); });
}

Result close_recv(void* recv_comm) noexcept {
  return guarded([&] { close_comm(recv_comm); });
}

Result close_listen(void* listen_comm) noexcept {
  return guarded([&] {
    if (listen_comm != nullptr) State::get().listeners().remove(listen_comm);
  });
}

}  // namespace mesh::net
