// The newest version of NCCL's net interface, as the mesh plugin implements it. exports.cc derives the older versions.
//
// The functions implement `abi::newest::Net`. They never wait for the peer, throw no exception and write every
// output. For each error they log one WARN line that says what to do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/abi/net.h"

namespace mesh::net {

namespace abi = plugfest::abi;
using abi::Result;
using abi::newest::CommConfig;
using abi::newest::NetAttr;
using abi::newest::Properties;
using abi::newest::VDevice;

inline constexpr const char* kName = "Mesh";

Result init(void** context, std::uint64_t communicator, CommConfig* config, abi::Logger logger,
            abi::ProfilerCallback profiler) noexcept;
Result finalize(void* context) noexcept;

/// Implements init of the versions without contexts: the devices stay open until the library is unloaded.
Result init_for_good(abi::Logger logger, abi::ProfilerCallback profiler) noexcept;

/// Later connections log the plan in `attributes`.
Result set_net_attr(void* context, NetAttr* attributes) noexcept;

Result devices(int* count) noexcept;
Result get_properties(int device, Properties* properties) noexcept;
Result make_vdevice(int* device, VDevice* members) noexcept;

Result listen(void* context, int device, void* handle, void** listen_comm) noexcept;
Result connect(void* context, int device, void* handle, void** send_comm, abi::DeviceHandle** device_comm) noexcept;
Result accept(void* listen_comm, void** recv_comm, abi::DeviceHandle** device_comm) noexcept;
/// Implements connect of the versions without contexts, with the traffic class that v10 passes. `config` may be null.
Result connect_with(int device, const CommConfig* config, void* handle, void** send_comm) noexcept;

Result reg_mr(void* comm, void* data, std::size_t size, int type, void** memory) noexcept;
Result reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                      void** memory) noexcept;
Result dereg_mr(void* comm, void* memory) noexcept;

Result isend(void* send_comm, void* data, std::size_t size, int tag, void* memory, void* profiler_handle,
             void** request) noexcept;
Result irecv(void* recv_comm, int count, void** data, std::size_t* sizes, int* tags, void** memory,
             void** profiler_handles, void** request) noexcept;
Result iflush(void* recv_comm, int count, void** data, int* sizes, void** memory, void** request) noexcept;
Result test(void* request, int* done, int* sizes) noexcept;
Result irecv_consumed(void* recv_comm, int count, void* request) noexcept;

Result close_send(void* send_comm) noexcept;
Result close_recv(void* recv_comm) noexcept;
Result close_listen(void* listen_comm) noexcept;

}  // namespace mesh::net
