#include "plugins/mesh/one_sided/one_sided.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins/mesh/guard.h"
#include "plugins/mesh/net.h"
#include "plugins/mesh/one_sided/coll_comm.h"
#include "plugins/mesh/state.h"

namespace mesh::one_sided {

static_assert(Connection::kMaxRequests == abi::kMaxRequests * kMaxGroup, "32 x maxRecvs");

namespace {

ContextHandle& context_of(void* context) {
  require(context, "ginCtx");
  return *static_cast<ContextHandle*>(context);
}

Place place(void* memory, std::uint64_t offset) { return {static_cast<const Window*>(memory), offset}; }

// Calls `post` with the connection of the transfer, and stores the request.
template <typename Post>
Result post_transfer(void* context, const Transfer& transfer, void** request, const Post& post) noexcept {
  return guarded([&] {
    require(request, "request");
    *request = nullptr;
    ContextHandle& handle = context_of(context);
    if (transfer.size > 0) {
      require(transfer.local_memory, "the handle of local memory");
      require(transfer.remote_memory, "the handle of remote memory");
    }
    Connection& connection = handle.context->connection(transfer.context, transfer.rank);
    const std::uint32_t number = post(connection);
    *request = CollComm::request(handle, handle.context->index(transfer.context, transfer.rank), number);
  });
}

}  // namespace

Result get_properties(int device, abi::v12::Properties* properties) noexcept {
  const Result result = net::get_properties(device, properties);
  if (result == Result::kSuccess) properties->netDeviceType = abi::kDeviceGinProxy;
  return result;
}

Result connect(void** handles, int ranks, int rank, void* listen_comm, int contexts, void** coll_comm) noexcept {
  return guarded([&] {
    require(coll_comm, "connect: collComm");
    *coll_comm = nullptr;
    require(handles, "connect: handles");
    if (ranks < 1 || rank < 0 || rank >= ranks)
      throw Failure(Result::kInvalidArgument,
                    "connect: rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
    State& state = State::get();
    try {
      std::vector<Handle> decoded;
      for (void* const handle : std::span(handles, static_cast<std::size_t>(ranks))) {
        require(handle, "connect: a handle");
        decoded.push_back(decode_handle(
            std::span<const std::uint8_t, kHandleBytes>(static_cast<const std::uint8_t*>(handle), kHandleBytes)));
      }
      const Transport transport = state.transport(nullptr);
      auto team = std::make_unique<Team>(state, decoded, static_cast<std::size_t>(rank), listen_comm, transport);
      auto comm = std::make_unique<CollComm>(std::move(team));
      if (contexts > 0) comm->open_context({.contexts = contexts}, transport);
      *coll_comm = comm.release();
    } catch (...) {
      state.listeners().refuse(listen_comm);  // the other ranks must not wait for this one
      throw;
    }
  });
}

Result create_context(void* coll_comm, const ContextConfig& config, int traffic_class, void** context,
                      abi::DeviceHandle** device_handle) noexcept {
  return guarded([&] {
    require(context, "createContext: ctx");
    *context = nullptr;
    if (device_handle != nullptr) *device_handle = nullptr;
    ContextHandle* const handle =
        CollComm::of(coll_comm).open_context(config, State::get().transport_with(traffic_class));
    handle->device = {.netDeviceType = abi::kDeviceGinProxy,
                      .netDeviceVersion = abi::kDeviceInvalidVersion,
                      .handle = handle,
                      .size = sizeof(ContextHandle),
                      .needsProxyProgress = 1};
    if (device_handle != nullptr) *device_handle = &handle->device;
    *context = handle;
  });
}

Result destroy_context(void* context) noexcept {
  return guarded([&] {
    if (context == nullptr) return;
    auto* const handle = static_cast<ContextHandle*>(context);
    handle->comm->close_context(handle);
  });
}

Result reg_mr_sym(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                  void** memory, void** device_key) noexcept {
  return guarded([&] {
    require(memory, "regMrSym: mhandle");
    *memory = nullptr;
    if (device_key != nullptr) *device_key = nullptr;
    CollComm& comm = CollComm::of(coll_comm);
    const auto add = [&](const MemoryToRegister& range) { *memory = comm.add_window(range); };
    if (descriptor < 0)
      State::get().with_memory(data, size, type, add);
    else
      add({.data = data,
           .bytes = size,
           .of_gpu = type == abi::kPointerCuda,
           .dma_buf = descriptor,
           .dma_buf_offset = offset});
    if (device_key != nullptr) *device_key = *memory;
  });
}

Result dereg_mr_sym(void* coll_comm, void* memory) noexcept {
  return guarded([&] {
    if (memory != nullptr) CollComm::of(coll_comm).remove_window(static_cast<Window*>(memory));
  });
}

Result close_coll(void* coll_comm) noexcept {
  return guarded([&] {
    if (coll_comm != nullptr) delete &CollComm::of(coll_comm);
  });
}

Result iput(void* context, const Transfer& transfer, const Signal* signal, void** request) noexcept {
  return post_transfer(context, transfer, request, [&](Connection& connection) {
    if (signal != nullptr) require(signal->place.window, "the handle of the signal's memory");
    return connection.put(place(transfer.local_memory, transfer.local_offset),
                          place(transfer.remote_memory, transfer.remote_offset), transfer.size, signal);
  });
}

Result iget(void* context, const Transfer& transfer, void** request) noexcept {
  return post_transfer(context, transfer, request, [&](Connection& connection) {
    return connection.get(place(transfer.remote_memory, transfer.remote_offset),
                          place(transfer.local_memory, transfer.local_offset), transfer.size);
  });
}

Result iflush(void* context, int number, std::uint32_t rank, void** request) noexcept {
  return guarded([&] {
    require(request, "iflush: request");
    *request = nullptr;
    ContextHandle& handle = context_of(context);
    Connection& connection = handle.context->connection(number, rank);
    connection.poll();
    if (!connection.idle())
      *request = CollComm::request(handle, handle.context->index(number, rank), connection.last());
  });
}

Result test(void* coll_comm, void* request, int* done) noexcept {
  return guarded([&] {
    require(done, "test: done");
    *done = 0;
    require(coll_comm, "test: collComm");
    *done = static_cast<CollComm*>(coll_comm)->test(request) ? 1 : 0;
  });
}

Result progress(void* context) noexcept {
  return guarded([&] { context_of(context).context->poll(); });
}

Result query_last_error(void* context, bool* has_error) noexcept {
  return guarded([&] {
    require(has_error, "queryLastError: hasError");
    // NCCL 2.30.3 and 2.30.4 pass a pointer of their own.
    *has_error = CollComm::has_error(context);
  });
}

void* default_context(void* coll_comm) noexcept {
  void* context = nullptr;
  guarded([&] {
    require(coll_comm, "collComm");
    context = &static_cast<CollComm*>(coll_comm)->default_context();
  });
  return context;
}

}  // namespace mesh::one_sided
