// Keeps tables of verbs objects. A transfer is a copy within the process.
#include "plugins/mesh/testing/fake_verbs.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "plugins/mesh/device/address.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace mesh::fake {
namespace {

std::recursive_mutex g_mutex;
std::size_t g_objects = 0;
constexpr std::uint32_t kFirstKey = 0x1000;
std::uint32_t g_next_key = kFirstKey;
std::uint32_t g_next_number = 0x100;
int g_gid_index = -1;

struct Queue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool broken = false;
};
struct Pair : ibv_qp {
  Queue* completions = nullptr;
  std::uint32_t inline_bytes = 0;
  std::uint32_t remote = 0;
  int access = 0;
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> buffers;
};

std::map<std::uint32_t, Pair*> g_pairs;
std::map<std::uint32_t, ibv_mr*> g_regions;
std::map<std::uint32_t, int> g_access;

void complete(Pair& pair, std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes = 0,
              std::uint32_t immediate = 0, bool with_immediate = false) {
  ibv_wc completion = {};
  completion.wc_flags = with_immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0u;
  completion.wr_id = id;
  completion.status = status;
  completion.opcode = opcode;
  completion.byte_len = bytes;
  completion.imm_data = immediate;
  completion.qp_num = pair.qp_num;
  pair.completions->completions.push_back(completion);
}

void break_pair(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (const ibv_recv_wr& receive : pair.receives) complete(pair, receive.wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
  pair.receives.clear();
  pair.buffers.clear();
}

void* memory(std::uint32_t key, std::uint64_t address, std::size_t bytes, int access) {
  const auto found = g_regions.find(key);
  if (found == g_regions.end() || (g_access[key] & access) != access) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(found->second->addr);
  if (address < begin || bytes > found->second->length || address - begin > found->second->length - bytes)
    return nullptr;
  return reinterpret_cast<void*>(address);
}

// Carries out a transfer. Returns the status of the sender's completion.
ibv_wc_status deliver(Pair& from, const ibv_send_wr& work) {
  const auto found = g_pairs.find(from.remote);
  const bool failed = nic().failed_pairs == static_cast<int>(from.qp_num % 2);
  if (nic().lose_packets || (failed && !nic().failed_pairs_deliver) || found == g_pairs.end())
    return IBV_WC_RETRY_EXC_ERR;
  Pair& to = *found->second;
  if (to.state != IBV_QPS_RTR && to.state != IBV_QPS_RTS) return IBV_WC_RETRY_EXC_ERR;
  const std::size_t bytes = work.num_sge > 0 ? work.sg_list->length : 0;
  if (work.opcode == IBV_WR_RDMA_READ) {
    ++nic().reads;
    from.completions->broken = nic().reads_break_queues;
    const void* remote = memory(work.wr.rdma.rkey, work.wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_READ);
    void* local = memory(work.sg_list->lkey, work.sg_list->addr, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (remote == nullptr || local == nullptr || (to.access & IBV_ACCESS_REMOTE_READ) == 0)
      return IBV_WC_REM_ACCESS_ERR;
    std::memcpy(local, remote, bytes);
    return IBV_WC_SUCCESS;
  }
  if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    void* remote = memory(work.wr.atomic.rkey, work.wr.atomic.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
    void* local = memory(work.sg_list->lkey, work.sg_list->addr, 8, IBV_ACCESS_LOCAL_WRITE);
    if (remote == nullptr || local == nullptr || (to.access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
      return IBV_WC_REM_ACCESS_ERR;
    std::memcpy(local, remote, 8);
    *static_cast<std::uint64_t*>(remote) += work.wr.atomic.compare_add;
    return IBV_WC_SUCCESS;
  }
  const void* source = nullptr;
  if (bytes > 0) {
    source = (work.send_flags & IBV_SEND_INLINE) != 0 ? reinterpret_cast<void*>(work.sg_list->addr)
                                                      : memory(work.sg_list->lkey, work.sg_list->addr, bytes, 0);
    if (source == nullptr) return IBV_WC_LOC_PROT_ERR;
  }
  if (bytes > nic().max_message_bytes) return IBV_WC_LOC_LEN_ERR;

  const bool takes_receive = work.opcode != IBV_WR_RDMA_WRITE;
  if (takes_receive && to.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
  const bool is_send = work.opcode == IBV_WR_SEND || work.opcode == IBV_WR_SEND_WITH_IMM;
  if (is_send && bytes > 0) {
    const ibv_sge buffer = to.buffers.front();
    void* target = memory(buffer.lkey, buffer.addr, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (target == nullptr || bytes > buffer.length) return IBV_WC_REM_INV_REQ_ERR;
    std::memcpy(target, source, bytes);
  } else if (bytes > 0) {
    void* target = (to.access & IBV_ACCESS_REMOTE_WRITE) != 0
                       ? memory(work.wr.rdma.rkey, work.wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_WRITE)
                       : nullptr;
    if (target == nullptr) {
      break_pair(to);
      return IBV_WC_REM_ACCESS_ERR;
    }
    std::memcpy(target, source, bytes);
  }
  if (takes_receive) {
    complete(to, to.receives.front().wr_id, IBV_WC_SUCCESS, is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
             static_cast<std::uint32_t>(bytes), work.imm_data, work.opcode != IBV_WR_SEND);
    to.receives.pop_front();
    to.buffers.pop_front();
  }
  return failed ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS;
}

int post_send(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
  const std::lock_guard lock(g_mutex);
  auto& pair = static_cast<Pair&>(*qp);
  for (; work != nullptr; work = work->next) {
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) {
      *bad = work;
      return EINVAL;
    }
    if ((work->send_flags & IBV_SEND_INLINE) != 0 && work->sg_list->length > pair.inline_bytes) {
      *bad = work;
      return EINVAL;
    }
    const bool is_send = work->opcode == IBV_WR_SEND || work->opcode == IBV_WR_SEND_WITH_IMM;
    if (!is_send && (work->send_flags & IBV_SEND_INLINE) != 0) ++nic().inline_writes;
    const ibv_wc_opcode opcode = is_send                            ? IBV_WC_SEND
                                 : work->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                                                                    : IBV_WC_RDMA_WRITE;
    if (pair.state == IBV_QPS_ERR) {
      complete(pair, work->wr_id, IBV_WC_WR_FLUSH_ERR, opcode);
      continue;
    }
    const ibv_wc_status status = deliver(pair, *work);
    const bool signaled = (work->send_flags & IBV_SEND_SIGNALED) != 0;
    if (status != IBV_WC_SUCCESS || (signaled && !nic().lose_acknowledgements))
      complete(pair, work->wr_id, status, opcode);
    if (status != IBV_WC_SUCCESS) break_pair(pair);
  }
  return 0;
}

int post_receive(ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** /*bad*/) {
  const std::lock_guard lock(g_mutex);
  auto& pair = static_cast<Pair&>(*qp);
  for (; work != nullptr; work = work->next) {
    pair.receives.push_back(*work);
    pair.buffers.push_back(work->num_sge > 0 ? *work->sg_list : ibv_sge{});
    if (pair.state == IBV_QPS_ERR) break_pair(pair);
  }
  return 0;
}

int poll(ibv_cq* cq, int count, ibv_wc* completions) {
  const std::lock_guard lock(g_mutex);
  auto& queue = static_cast<Queue&>(*cq);
  if (queue.broken) return -1;
  int taken = 0;
  while (taken < count && !queue.completions.empty()) {
    completions[taken++] = queue.completions.front();
    queue.completions.pop_front();
  }
  return taken;
}

template <typename T>
T* count_new(T* object) {
  ++g_objects;
  return object;
}
template <typename T>
int destroy(T* object) {
  --g_objects;
  delete object;
  return 0;
}

ibv_device* device() {
  static ibv_device the_device = [] {
    ibv_device device = {};
    std::strcpy(device.name, "fake0");
    return device;
  }();
  return &the_device;
}

}  // namespace

Nic& nic() {
  static Nic the_nic;
  return the_nic;
}

int gid_index_of_last_connection() {
  const std::lock_guard lock(g_mutex);
  return g_gid_index;
}

std::size_t registered_regions() {
  const std::lock_guard lock(g_mutex);
  return g_next_key - kFirstKey;
}

std::size_t open_objects() {
  const std::lock_guard lock(g_mutex);
  return g_objects;
}

}  // namespace mesh::fake

using namespace mesh::fake;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 1;
  return new ibv_device* [2] { device(), nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* verbs) { return verbs->name; }
int ibv_fork_init() { return 0; }
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "a status";
}

ibv_context* ibv_open_device(ibv_device* verbs) {
  const std::lock_guard lock(g_mutex);
  auto* context = count_new(new ibv_context{});
  context->device = verbs;
  context->ops.poll_cq = poll;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_receive;
  return context;
}
int ibv_close_device(ibv_context* context) {
  const std::lock_guard lock(g_mutex);
  return destroy(context);
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* compatible) {
  auto* attributes = reinterpret_cast<ibv_port_attr*>(compatible);
  attributes->state = nic().active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->max_msg_sz = nic().max_message_bytes;
  attributes->gid_tbl_len = 8;
  attributes->active_width = 1;
  attributes->active_speed = 32;
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
  *entry = {};
  const auto& gids = nic().gids;
  if (index > gids.size() || (index > 0 && gids[index - 1].empty())) return ENODATA;
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = if_nametoindex("lo");
  const mesh::Address address = mesh::parse_address(index == 0 ? "127.0.0.1" : gids[index - 1]);
  std::memcpy(entry->gid.raw, address.bytes.data(), address.bytes.size());
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most, uint32_t, size_t size) {
  size_t count = 0;
  for (uint32_t index = 0; index <= nic().gids.size() && count < most; ++index)
    count += _ibv_query_gid_ex(context, 1, index, &entries[count], 0, size) == 0 ? 1 : 0;
  return static_cast<ssize_t>(count);
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const std::lock_guard lock(g_mutex);
  auto* domain = count_new(new ibv_pd{});
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
  const std::lock_guard lock(g_mutex);
  return destroy(domain);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t bytes, uint64_t, unsigned access) {
  const std::lock_guard lock(g_mutex);
  auto* region = count_new(new ibv_mr{});
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->lkey = region->rkey = g_next_key++;
  g_regions[region->rkey] = region;
  g_access[region->rkey] = static_cast<int>(access);
  return region;
}
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t bytes, int access) {
  return ibv_reg_mr_iova2(domain, address, bytes, 0, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t, size_t bytes, uint64_t address, int descriptor, int access) {
  if (!nic().takes_dma_buf || descriptor < 0) {
    errno = nic().takes_dma_buf ? EBADF : EOPNOTSUPP;
    return nullptr;
  }
  return ibv_reg_mr_iova2(domain, reinterpret_cast<void*>(address), bytes, 0, static_cast<unsigned>(access));
}
int ibv_dereg_mr(ibv_mr* region) {
  const std::lock_guard lock(g_mutex);
  g_regions.erase(region->rkey);
  return destroy(region);
}

ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) {
  const std::lock_guard lock(g_mutex);
  auto* queue = count_new(new Queue{});
  queue->context = context;
  return queue;
}
int ibv_destroy_cq(ibv_cq* cq) {
  const std::lock_guard lock(g_mutex);
  return destroy(static_cast<Queue*>(cq));
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  const std::lock_guard lock(g_mutex);
  if (attributes->cap.max_inline_data > nic().max_inline_bytes) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pair = count_new(new Pair{});
  pair->context = domain->context;
  if (g_pairs.empty()) g_next_number = 0x100;
  pair->qp_num = g_next_number++;
  pair->state = IBV_QPS_RESET;
  pair->completions = static_cast<Queue*>(attributes->send_cq);
  pair->inline_bytes = attributes->cap.max_inline_data;
  g_pairs[pair->qp_num] = pair;
  return pair;
}
int ibv_destroy_qp(ibv_qp* qp) {
  const std::lock_guard lock(g_mutex);
  g_pairs.erase(qp->qp_num);
  return destroy(static_cast<Pair*>(qp));
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const std::lock_guard lock(g_mutex);
  auto& pair = static_cast<Pair&>(*qp);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) pair.access = static_cast<int>(attributes->qp_access_flags);
  if ((mask & IBV_QP_AV) != 0) g_gid_index = attributes->ah_attr.grh.sgid_index;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.remote = attributes->dest_qp_num;
  if (attributes->qp_state == IBV_QPS_ERR)
    break_pair(pair);
  else
    pair.state = attributes->qp_state;
  return 0;
}

}  // extern "C"
