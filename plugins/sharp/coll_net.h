// The newest version of NCCL's CollNet interface. exports.cc derives the older versions.
//
// The functions implement `abi::v12::CollNet`, throw no exception and write every output. For each error they log one
// WARN line that says what to do. Only connect waits for other ranks. The net part (plugins/mesh) has the other
// functions of NCCL's table, so that both parts have the same devices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/abi/coll_net.h"

namespace sharp::coll_net {

namespace abi = plugfest::abi;
using abi::Result;
using Part = abi::v12::CollNet::Part;

inline constexpr const char* kName = "Sharp";

Result init(void** context, std::uint64_t communicator, abi::Logger logger) noexcept;
/// Implements init of the versions without contexts: the devices stay open until the library is unloaded.
Result init_for_good(abi::Logger logger) noexcept;

Result listen(void* context, int device, void* handle, void** listen_comm) noexcept;
/// Waits until all ranks have called it, at most NCCL_SHARP_CONNECT_TIMEOUT seconds. Fails on all ranks if it fails on
/// one. Ends listening.
Result connect(void** handles, int ranks, int rank, void* listen_comm, void** coll_comm) noexcept;
Result close_listen(void* listen_comm) noexcept;
Result close_coll(void* coll_comm) noexcept;

Result reduce_support(int type, int op, int* supported) noexcept;

Result reg_mr(void* coll_comm, void* data, std::size_t size, int type, void** memory) noexcept;
Result reg_mr_dma_buf(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                      void** memory) noexcept;
Result dereg_mr(void* coll_comm, void* memory) noexcept;

Result iallreduce(void* coll_comm, void* send, void* receive, std::size_t count, int type, int op, void* send_memory,
                  void* receive_memory, void** request) noexcept;
Result iallgather(void* coll_comm, void* send, int part_count, Part* receive_parts, std::size_t bytes_per_rank,
                  std::size_t window_offset, std::size_t window_bytes, void* send_memory, void** request) noexcept;
Result ireducescatter(void* coll_comm, int part_count, Part* send_parts, void* receive, std::size_t bytes_per_rank,
                      std::size_t window_offset, std::size_t window_bytes, int type, int op, void* receive_memory,
                      void** request) noexcept;
Result iflush(void* coll_comm, void* data, int size, void* memory, void** request) noexcept;
Result test(void* request, int* done, int* size) noexcept;

}  // namespace sharp::coll_net
