// The symbols that NCCL looks for: one function table for each version of the net interface and of CollNet.
#include "plugins/mesh/exports.h"

#include <type_traits>

#include "harness/abi/coll_net.h"
#include "plugins/sharp/coll_net.h"

namespace sharp {
namespace {

namespace abi = plugfest::abi;
using abi::Result;

// A negative size becomes one that is larger than any memory.
std::size_t size_from_v6(int size) { return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(size)); }

Result listen_v6(int device, void* handle, void** listen_comm) {
  return coll_net::listen(nullptr, device, handle, listen_comm);
}

Result reg_mr_v6(void* coll_comm, void* data, int size, int type, void** memory) {
  return coll_net::reg_mr(coll_comm, data, size_from_v6(size), type, memory);
}

Result iallreduce_v6(void* coll_comm, void* send, void* receive, int count, int type, int op, void* send_memory,
                     void* receive_memory, void** request) {
  return coll_net::iallreduce(coll_comm, send, receive, size_from_v6(count), type, op, send_memory, receive_memory,
                              request);
}

// Other numbers of parts than 1 are refused before the part is read.
coll_net::Part part_from_v8(const abi::v8::CollNet::Part* parts, int count) {
  if (parts == nullptr || count != 1) return {};
  return {.mhandle = parts->mhandle, .address = parts->address, .size = parts->size};
}

Result iallgather_v8(void* coll_comm, void* send, int part_count, abi::v8::CollNet::Part* receive_parts,
                     std::size_t bytes_per_rank, std::size_t window_offset, std::size_t window_bytes, void* send_memory,
                     void** request) {
  coll_net::Part part = part_from_v8(receive_parts, part_count);
  return coll_net::iallgather(coll_comm, send, part_count, &part, bytes_per_rank, window_offset, window_bytes,
                              send_memory, request);
}

Result ireducescatter_v8(void* coll_comm, int part_count, abi::v8::CollNet::Part* send_parts, void* receive,
                         std::size_t bytes_per_rank, std::size_t window_offset, std::size_t window_bytes, int type,
                         int op, void* receive_memory, void** request) {
  coll_net::Part part = part_from_v8(send_parts, part_count);
  return coll_net::ireducescatter(coll_comm, part_count, &part, receive, bytes_per_rank, window_offset, window_bytes,
                                  type, op, receive_memory, request);
}

// Sets a slot to the newest function, or to the older one if only that has the slot's type.
template <typename Slot, typename Newest, typename Older>
constexpr void set_fitting(Slot& slot, Newest newest, Older older) {
  if constexpr (std::is_assignable_v<Slot&, Newest>)
    slot = newest;
  else
    slot = older;
}

// The table of one version. `Net`: the net interface of this version, which has the same properties.
template <typename CollNet, typename Net>
constexpr CollNet exported() {
  CollNet table = {};
  table.name = coll_net::kName;
  set_fitting(table.init, coll_net::init, coll_net::init_for_good);
  table.devices = mesh::net::devices;
  table.getProperties = mesh::exported<Net>().getProperties;
  set_fitting(table.listen, coll_net::listen, listen_v6);
  table.connect = coll_net::connect;
  table.reduceSupport = coll_net::reduce_support;
  set_fitting(table.regMr, coll_net::reg_mr, reg_mr_v6);
  table.regMrDmaBuf = coll_net::reg_mr_dma_buf;
  table.deregMr = coll_net::dereg_mr;
  set_fitting(table.iallreduce, coll_net::iallreduce, iallreduce_v6);
  if constexpr (requires { table.iallgather; }) {
    set_fitting(table.iallgather, coll_net::iallgather, iallgather_v8);
    set_fitting(table.ireducescatter, coll_net::ireducescatter, ireducescatter_v8);
  }
  table.iflush = coll_net::iflush;
  table.test = coll_net::test;
  table.closeColl = coll_net::close_coll;
  table.closeListen = coll_net::close_listen;
  // makeVDevice stays null: NCCL then uses the NICs of which the virtual devices of the net part consist.
  if constexpr (requires { table.finalize; }) table.finalize = mesh::net::finalize;
  return table;
}

}  // namespace
}  // namespace sharp

// The tables are not const, as in NCCL's declarations.
#define EXPORT(api)                                                                                  \
  MESH_EXPORT_NET(api)                                                                               \
  [[gnu::visibility("default")]] constinit plugfest::abi::v##api::CollNet ncclCollNetPlugin_v##api = \
      sharp::exported<plugfest::abi::v##api::CollNet, plugfest::abi::v##api::Net>();
extern "C" {
PLUGFEST_NET_VERSIONS(EXPORT)
}  // extern "C"
#undef EXPORT
