// NCCL's one-sided interfaces, GIN and RMA, as the mesh plugin implements them. exports.cc adapts them to each version.
//
// No function throws. For each error they log one WARN line that says what to do. connect, regMrSym and createContext
// are collectives: they wait for all ranks, and fail on all ranks if they fail on one. connect also fails after 60 s
// without a new connection. Data calls never wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/abi/one_sided.h"
#include "plugins/mesh/one_sided/context.h"

namespace mesh::one_sided {

namespace abi = plugfest::abi;
using abi::Result;

Result get_properties(int device, abi::v12::Properties* properties) noexcept;

/// `contexts`: GIN v11 and v12 open a context object in connect; this is its number of contexts. 0: connect opens none.
Result connect(void** handles, int ranks, int rank, void* listen_comm, int contexts, void** coll_comm) noexcept;
/// `traffic_class`: a value outside 0 to 255 selects the value of NCCL_MESH_TC. `device_handle` may be null.
Result create_context(void* coll_comm, const ContextConfig& config, int traffic_class, void** context,
                      abi::DeviceHandle** device_handle) noexcept;
Result destroy_context(void* context) noexcept;
/// `descriptor`: a DMA-BUF; negative: none. If `device_key` is not null, it receives the handle for device code, which
/// equals `*memory`.
Result reg_mr_sym(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                  void** memory, void** device_key) noexcept;
Result dereg_mr_sym(void* coll_comm, void* memory) noexcept;
Result close_coll(void* coll_comm) noexcept;

/// A transfer between the memory of this rank and the memory of another one.
struct Transfer {
  int context = 0;
  std::uint64_t local_offset = 0;
  void* local_memory = nullptr;
  std::size_t size = 0;
  std::uint64_t remote_offset = 0;
  void* remote_memory = nullptr;
  std::uint32_t rank = 0;
};
/// `signal`: null, or the signal that follows the data.
Result iput(void* context, const Transfer& transfer, const Signal* signal, void** request) noexcept;
Result iget(void* context, const Transfer& transfer, void** request) noexcept;
/// `*request` is null if nothing is in flight.
Result iflush(void* context, int number, std::uint32_t rank, void** request) noexcept;
Result test(void* coll_comm, void* request, int* done) noexcept;
Result progress(void* context) noexcept;
Result query_last_error(void* context, bool* has_error) noexcept;

/// The context of a collComm whose data calls name none; null, with a log line, if there is none.
void* default_context(void* coll_comm) noexcept;

}  // namespace mesh::one_sided
