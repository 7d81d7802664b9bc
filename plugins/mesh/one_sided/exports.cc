// The function tables of GIN v11 to v13 and RMA v13 to v16.
#include "harness/abi/downgrade.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/net.h"
#include "plugins/mesh/one_sided/one_sided.h"

namespace mesh::one_sided {
namespace {

Result init(void** context, std::uint64_t communicator, abi::Logger logger) {
  return net::init(context, communicator, nullptr, logger, nullptr);
}

Result connect_v13(void*, void** handles, int ranks, int rank, void* listener, void** comm) {
  return connect(handles, ranks, rank, listener, 0, comm);
}

template <typename T>
constexpr T common() {
  T table = {};
  table.name = net::kName;
  table.init = init;
  table.devices = net::devices;
  if constexpr (std::is_same_v<typename T::Properties, abi::v12::Properties>)
    table.getProperties = get_properties;
  else
    table.getProperties = abi::get_older_properties<get_properties>;
  table.listen = net::listen;
  table.deregMrSym = dereg_mr_sym;
  table.destroyContext = destroy_context;
  table.closeColl = close_coll;
  table.closeListen = net::close_listen;
  table.test = test;
  table.queryLastError = query_last_error;
  table.finalize = net::finalize;
  return table;
}

template <typename T>
constexpr T with_gin_registrations() {
  T table = common<T>();
  table.regMrSym = [](void* comm, void* data, std::size_t size, int type, std::uint64_t, void** memory, void** key) {
    return reg_mr_sym(comm, data, size, type, 0, -1, memory, key);
  };
  table.regMrSymDmaBuf = [](void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                            std::uint64_t, void** memory,
                            void** key) { return reg_mr_sym(comm, data, size, type, offset, fd, memory, key); };
  return table;
}

// Versions whose data calls name no context.
template <typename T>
constexpr T without_contexts() {
  T table = with_gin_registrations<T>();
  table.ginProgress = [](void* comm) {
    void* const context = default_context(comm);
    return context == nullptr ? Result::kInvalidUsage : progress(context);
  };
  return table;
}

constexpr abi::GinV11 gin_v11() {
  auto table = without_contexts<abi::GinV11>();
  table.connect = [](void*, void** handles, int ranks, int rank, void* listener, void** comm) {
    return connect(handles, ranks, rank, listener, 1, comm);
  };
  table.createContext = [](void* comm, int, int, void** context, abi::DeviceHandle** device) {
    return create_context(comm, {}, abi::kContextTrafficClassUndefined, context, device);
  };
  table.iput = [](void* comm, std::uint64_t from, void* source, std::size_t size, std::uint64_t to, void* target,
                  std::uint32_t rank, void** request) {
    return iput(default_context(comm), {0, from, source, size, to, target, rank}, nullptr, request);
  };
  table.iputSignal = [](void* comm, std::uint64_t from, void* source, std::size_t size, std::uint64_t to, void* target,
                        std::uint32_t rank, std::uint64_t at, void* memory, std::uint64_t value, std::uint32_t op,
                        void** request) {
    const Signal signal = {{static_cast<const Window*>(memory), at}, value, op};
    return iput(default_context(comm), {0, from, source, size, to, target, rank}, &signal, request);
  };
  return table;
}

constexpr abi::GinV12 gin_v12() {
  auto table = without_contexts<abi::GinV12>();
  table.connect = [](void*, void** handles, int ranks, int rank, int connections, int, void* listener, void** comm) {
    return connect(handles, ranks, rank, listener, connections < 1 ? 1 : connections, comm);
  };
  table.createContext = [](void* comm, int, int, int contexts, void** context, abi::DeviceHandle** device) {
    return create_context(comm, {.contexts = contexts}, abi::kContextTrafficClassUndefined, context, device);
  };
  table.iput = [](void* comm, std::uint64_t from, void* source, std::size_t size, std::uint64_t to, void* target,
                  std::uint32_t rank, int connection, void** request) {
    return iput(default_context(comm), {connection, from, source, size, to, target, rank}, nullptr, request);
  };
  table.iputSignal = [](void* comm, std::uint64_t from, void* source, std::size_t size, std::uint64_t to, void* target,
                        std::uint32_t rank, std::uint64_t at, void* memory, std::uint64_t value, std::uint32_t op,
                        int connection, void** request) {
    const Signal signal = {{static_cast<const Window*>(memory), at}, value, op};
    return iput(default_context(comm), {connection, from, source, size, to, target, rank}, &signal, request);
  };
  return table;
}

Result flush(void* context, int number, void*, std::uint32_t rank, void** request) {
  return iflush(context, number, rank, request);
}

// From v13 on. `Options`: the parameters of data calls before the request.
template <typename... Options>
constexpr auto put = [](void* context, int number, std::uint64_t from, void* source, std::size_t size, std::uint64_t to,
                        void* target, std::uint32_t rank, Options..., void** request) {
  return iput(context, {number, from, source, size, to, target, rank}, nullptr, request);
};
template <typename... Options>
constexpr auto put_signal = [](void* context, int number, std::uint64_t from, void* source, std::size_t size,
                               std::uint64_t to, void* target, std::uint32_t rank, std::uint64_t at, void* memory,
                               std::uint64_t value, std::uint32_t op, Options..., void** request) {
  const Signal signal = {{static_cast<const Window*>(memory), at}, value, op};
  return iput(context, {number, from, source, size, to, target, rank}, &signal, request);
};
template <typename... Options>
constexpr auto get = [](void* context, int number, std::uint64_t from, void* source, std::size_t size, std::uint64_t to,
                        void* target, std::uint32_t rank, Options..., void** request) {
  return iget(context, {number, to, target, size, from, source, rank}, request);
};

constexpr abi::OneSidedV13 v13() {
  auto table = with_gin_registrations<abi::OneSidedV13>();
  table.connect = connect_v13;
  table.createContext = [](void* comm, abi::GinConfigV13* config, void** context, abi::DeviceHandle** device) {
    const abi::GinConfigV13 given = config != nullptr ? *config : abi::GinConfigV13{0, 0, 1, 0, -1};
    return create_context(comm, {.contexts = given.nContexts}, given.trafficClass, context, device);
  };
  table.iput = put<>;
  table.iputSignal = put_signal<>;
  table.iget = get<>;
  table.iflush = flush;
  table.ginProgress = progress;
  return table;
}

template <typename T>
constexpr T rma() {
  T table = common<T>();
  table.connect = connect_v13;
  table.createContext = [](void* comm, abi::RmaConfig* config, void** context) {
    const abi::RmaConfig given = config != nullptr ? *config : abi::RmaConfig{1, -1, 1};
    return create_context(comm, {.contexts = given.nContexts, .rank_stride = given.rankStride}, given.trafficClass,
                          context, nullptr);
  };
  table.regMrSym = [](void* comm, void* data, std::size_t size, int type, std::uint64_t, void** memory) {
    return reg_mr_sym(comm, data, size, type, 0, -1, memory, nullptr);
  };
  table.regMrSymDmaBuf = [](void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                            std::uint64_t,
                            void** memory) { return reg_mr_sym(comm, data, size, type, offset, fd, memory, nullptr); };
  if constexpr (std::is_same_v<T, abi::RmaV14>) {
    table.iput = put<>;
    table.iputSignal = put_signal<bool>;
    table.iget = get<>;
  } else {
    table.iput = put<std::uint32_t>;
    table.iputSignal = put_signal<bool, std::uint32_t>;
    table.iget = get<std::uint32_t>;
  }
  table.iflush = flush;
  table.rmaProgress = progress;
  if constexpr (requires { table.getRmaProperties; }) {
    // A signal says nothing about puts that arrived through other queue pairs and NICs.
    table.getRmaProperties = [](void*, abi::RmaProperties* properties) {
      properties->flushesAllPutsOnAnySignal = false;
      return Result::kSuccess;
    };
  }
  return table;
}

}  // namespace
}  // namespace mesh::one_sided

#define MESH_EXPORT [[gnu::visibility("default")]] constinit
extern "C" {
MESH_EXPORT plugfest::abi::GinV11 ncclGinPlugin_v11 = mesh::one_sided::gin_v11();
MESH_EXPORT plugfest::abi::GinV12 ncclGinPlugin_v12 = mesh::one_sided::gin_v12();
MESH_EXPORT plugfest::abi::OneSidedV13 ncclGinPlugin_v13 = mesh::one_sided::v13();
MESH_EXPORT plugfest::abi::OneSidedV13 ncclRmaPlugin_v13 = mesh::one_sided::v13();
MESH_EXPORT plugfest::abi::RmaV14 ncclRmaPlugin_v14 = mesh::one_sided::rma<plugfest::abi::RmaV14>();
MESH_EXPORT plugfest::abi::RmaV15 ncclRmaPlugin_v15 = mesh::one_sided::rma<plugfest::abi::RmaV15>();
MESH_EXPORT plugfest::abi::RmaV16 ncclRmaPlugin_v16 = mesh::one_sided::rma<plugfest::abi::RmaV16>();
}  // extern "C"
