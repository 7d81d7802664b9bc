// Each query returns the current state of the interface.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/device/context.h"
#include "fabric/roce/verbs/device/interface.h"
#include "fabric/system/clock.h"

// The header defines a macro of this name; here the function is defined.
#undef ibv_query_port

namespace plugfest::roce::verbs {
namespace {

struct Port {
  Interface interface;
  GidEntries gids;
};

// Reads the current state of the port, and updates the GID table and the engine, so that the program can use the result
// immediately. For a removed interface, returns the last known state with the port down.
Port current_port(const Context& context) {
  Device& device = context.device;
  if (const std::optional<Interface> now = read_nic_interface(device.interface.index))
    return {*now, update_port(device, *context.nic, *now, false)};
  Port gone = {device.interface, device.gids.entries()};
  gone.interface.up = false;
  return gone;
}

GidEntries gids_of_port(ibv_context* context, std::uint32_t port_num) {
  if (port_num != kPortNumber) fail(EINVAL);
  return context_of(context).gids();
}

ibv_gid_entry gid_entry(const Context& context, std::size_t index, const Address& address) {
  ibv_gid_entry entry = {};
  entry.gid = address.gid();
  entry.gid_index = static_cast<std::uint32_t>(index);
  entry.port_num = kPortNumber;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = static_cast<std::uint32_t>(context.device.interface.index);
  return entry;
}

}  // namespace

GidEntries Context::gids() {
  const std::lock_guard lock(gids_mutex_);
  // Programs query the entries one by one, and reading an interface takes some twenty system calls.
  gids_are_old_ |= changes_.take_changes();
  if (!gids_are_old_ && !device.gids.waits_for_lock()) return device.gids.entries();
  const GidEntries gids = current_port(*this).gids;
  gids_are_old_ = false;
  return gids;
}

ibv_device_attr device_attributes(const Context& context) {
  using limits::Kind, limits::max_objects;
  ibv_device_attr device = {};
  std::strncpy(device.fw_ver, kFirmwareVersion, sizeof(device.fw_ver) - 1);
  device.node_guid = guid_of(context.device.interface);
  device.sys_image_guid = device.node_guid;
  device.max_mr_size = UINT64_MAX;
  device.page_size_cap = 0xfffff000;
  device.vendor_id = kVendorId;
  device.vendor_part_id = kPartId;
  device.max_qp = max_objects(Kind::kQueuePair);
  device.max_qp_wr = limits::kWorkRequests;
  // Memory management extensions in user space: SEND with invalidate and local invalidate.
  device.device_cap_flags = IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_CURR_QP_STATE_MOD |
                            IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                            IBV_DEVICE_XRC;
  device.max_sge = limits::kScatterGather;
  device.max_sge_rd = limits::kScatterGather;
  device.max_cq = max_objects(Kind::kCompletionQueue);
  device.max_cqe = limits::kCompletionEntries;
  device.max_mr = max_objects(Kind::kMemoryRegion);
  device.max_mw = max_objects(Kind::kMemoryWindow);
  device.max_pd = max_objects(Kind::kProtectionDomain);
  device.max_qp_rd_atom = limits::kReadsInFlight;
  device.max_res_rd_atom = limits::kReadsInFlight * max_objects(Kind::kQueuePair);
  device.max_qp_init_rd_atom = limits::kReadsInFlight;
  device.atomic_cap = limits::kAtomics;
  device.max_mcast_grp = kMaxGroups;
  device.max_mcast_qp_attach = kMaxGroupMembers;
  device.max_total_mcast_qp_attach = kMaxGroups * kMaxGroupMembers;
  device.max_ah = max_objects(Kind::kAddressHandle);
  device.max_srq = max_objects(Kind::kSharedReceiveQueue);
  device.max_srq_wr = limits::kWorkRequests;
  device.max_srq_sge = limits::kScatterGather;
  device.max_pkeys = 1;
  device.local_ca_ack_delay = 15;
  device.phys_port_cnt = 1;
  return device;
}

int query_port_into(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attributes, std::size_t size) noexcept {
  const auto query = [&] {
    if (port_num != kPortNumber) return EINVAL;
    ibv_port_attr port = port_attributes(current_port(context_of(context)).interface);
    port.qkey_viol_cntr = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(context_of(context).nic->counters().q_key_violations, UINT16_MAX));
    std::memset(attributes, 0, size);
    std::memcpy(attributes, &port, std::min(size, sizeof(port)));
    return 0;
  };
  return status_of(query, "ibv_query_port");
}

int query_device_into(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                      std::size_t size) noexcept {
  return status_of([&] {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    if (size < sizeof(attributes->orig_attr)) return EINVAL;
    ibv_device_attr_ex device = {};
    device.orig_attr = device_attributes(context_of(context));
    device.device_cap_flags_ex = device.orig_attr.device_cap_flags;
    device.phys_port_cnt_ex = 1;
    device.completion_timestamp_mask = UINT64_MAX;
    device.hca_core_clock = kCoreClockKhz;
    device.cq_mod_caps = {UINT16_MAX, UINT16_MAX};
    std::memset(attributes, 0, size);
    std::memcpy(attributes, &device, std::min(size, sizeof(device)));
    return 0;
  });
}

int query_clock(ibv_context*, ibv_values_ex* values) noexcept {
  return status_of(
      [&] {
        if ((values->comp_mask & ~static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EINVAL;
        // Ticks, all of them in tv_nsec, as with mlx5: programs read this member only, or add tv_sec * 10^9.
        if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) values->raw_clock = {0, now_ns()};
        return 0;
      },
      "ibv_query_rt_values_ex");
}

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* device_attr) {
  return status_of([&] {
    *device_attr = device_attributes(context_of(context));
    return 0;
  });
}

// Programs linked against old headers pass a struct without port_cap_flags2.
int ibv_query_port(ibv_context* context, uint8_t port_num, _compat_ibv_port_attr* port_attr) {
  return query_port_into(context, port_num, reinterpret_cast<ibv_port_attr*>(port_attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* port_speed) {
  return status_of([&] {
    if (port_num != kPortNumber) return EINVAL;
    constexpr std::uint64_t kUnitMbps = 100;
    *port_speed = link_speed(current_port(context_of(context)).interface.speed_mbps).rate_mbps / kUnitMbps;
    return 0;
  });
}

int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  return value_or_errno([&] {
    const GidEntries gids = gids_of_port(context, port_num);
    if (index < 0 || static_cast<std::size_t>(index) >= gids.size()) fail(EINVAL);
    *gid = gids[static_cast<std::size_t>(index)].gid();  // zeros for an empty entry, as with hardware
    return 0;
  });
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry, uint32_t flags,
                      size_t entry_size) {
  return status_of([&] {
    if (flags != 0) return EOPNOTSUPP;
    const GidEntries gids = gids_of_port(context, port_num);
    if (gid_index >= gids.size()) return EINVAL;
    if (gids[gid_index] == Address()) return ENODATA;
    const ibv_gid_entry found = gid_entry(context_of(context), gid_index, gids[gid_index]);
    std::memset(entry, 0, entry_size);
    std::memcpy(entry, &found, std::min(entry_size, sizeof(found)));
    return 0;
  });
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries, uint32_t flags,
                             size_t entry_size) {
  std::size_t count = 0;
  const int error = status_of([&] {
    if (flags != 0) return EOPNOTSUPP;
    const GidEntries gids = gids_of_port(context, kPortNumber);
    auto* position = reinterpret_cast<char*>(entries);
    for (std::size_t index = 0; index < gids.size(); ++index) {
      if (gids[index] == Address()) continue;
      if (count == max_entries) return EINVAL;
      const ibv_gid_entry entry = gid_entry(context_of(context), index, gids[index]);
      std::memset(position, 0, entry_size);
      std::memcpy(position, &entry, std::min(entry_size, sizeof(entry)));
      position += entry_size;
      ++count;
    }
    return 0;
  });
  return error != 0 ? -error : static_cast<ssize_t>(count);
}

int ibv_query_pkey(ibv_context* /*context*/, uint8_t port_num, int index, __be16* pkey) {
  if (port_num != kPortNumber || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = kDefaultPKey;  // equal in both byte orders
  return 0;
}

int ibv_get_pkey_index(ibv_context* /*context*/, uint8_t port_num, __be16 pkey) {
  if (port_num == kPortNumber && pkey == kDefaultPKey) return 0;
  errno = EINVAL;
  return -1;
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
