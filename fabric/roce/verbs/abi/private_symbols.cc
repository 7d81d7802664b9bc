// Symbols without an implementation, which exist so that programs start. The functions fail with EOPNOTSUPP.
//
// Hardware drivers of rdma-core import from the private version nodes of libibverbs. perftest, UCX and
// NCCL's mlx5 path link libmlx5 and libefa with BIND_NOW: a program starts only if all their symbols exist. These
// drivers never handle a device of this library, so the functions only fail with EOPNOTSUPP. The node name contains the
// version of the private interface: 34 up to rdma-core 56, then one number per release that changed it.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "fabric/roce/verbs/abi/abi_edge.h"

// PLUGFEST_SYMBOL_VERSION for several names. `names`: a string, separated by commas. The aliases are `prefix` and name.
#define SYMBOLS(target, prefix, version, names)                                                            \
  __asm__(".irp name, " names "\n.globl " prefix "\\name\n.set " prefix "\\name, plugfest_absent_" #target \
          "\n.symver " prefix "\\name, \\name" version "\n.endr\n")

extern "C" {

// Targets of the symbols below. `used`: only assembler directives refer to them.
[[gnu::used]] int plugfest_absent_not_supported() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

[[gnu::used]] void* plugfest_absent_null() {
  errno = EOPNOTSUPP;
  return nullptr;
}

[[gnu::used]] int plugfest_absent_minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

[[gnu::used]] unsigned int plugfest_absent_zero() { return 0; }

[[gnu::used]] void plugfest_absent_nothing() {}

// Called by ibv_devinfo. The types are the same as in sysfs: 0 for InfiniBand or RoCE v1, 1 for RoCE v2.
[[gnu::used]] int plugfest_absent_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type) {
  ibv_gid_entry entry = {};
  const int error = _ibv_query_gid_ex(context, port_num, index, &entry, 0, sizeof(entry));
  if (error != 0 && error != ENODATA) {  // an empty entry has type 0
    errno = error;
    return -1;
  }
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

// verbs_allow_disassociate_destroy: drivers set it so that failed destroy commands are ignored.
[[gnu::used]] bool plugfest_absent_flag = false;

}  // extern "C"

// Functions of drivers in node 34 and all later nodes, and in node 57 and all later nodes.
#define NOT_SUPPORTED_SINCE_34                                                                                \
  "execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd, "                  \
  "ibv_cmd_attach_mcast, ibv_cmd_close_xrcd, ibv_cmd_create_ah, ibv_cmd_create_counters, ibv_cmd_create_cq, " \
  "ibv_cmd_create_cq_ex, ibv_cmd_create_flow, ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, "            \
  "ibv_cmd_create_qp_ex, ibv_cmd_create_qp_ex2, ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, "           \
  "ibv_cmd_create_srq_ex, ibv_cmd_create_wq, ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, "      \
  "ibv_cmd_destroy_ah, ibv_cmd_destroy_counters, ibv_cmd_destroy_cq, ibv_cmd_destroy_flow, "                  \
  "ibv_cmd_destroy_flow_action, ibv_cmd_destroy_qp, ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, "     \
  "ibv_cmd_destroy_wq, ibv_cmd_detach_mcast, ibv_cmd_free_dm, ibv_cmd_get_context, ibv_cmd_modify_cq, "       \
  "ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq, "             \
  "ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_post_recv, ibv_cmd_post_send, "             \
  "ibv_cmd_post_srq_recv, ibv_cmd_query_context, ibv_cmd_query_device_any, ibv_cmd_query_mr, "                \
  "ibv_cmd_query_port, ibv_cmd_query_qp, ibv_cmd_query_srq, ibv_cmd_read_counters, ibv_cmd_reg_dm_mr, "       \
  "ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr, ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, "                          \
  "ibv_cmd_resize_cq"

#define NOT_SUPPORTED_SINCE_57                                                               \
  "ibv_cmd_alloc_dmah, ibv_cmd_create_cq_ex2, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dmah, " \
  "ibv_cmd_query_port_speed, ibv_cmd_reg_mr_ex"

#define PRIVATE(target, node, at, names) SYMBOLS(target, "plugfest_" #node "_", at "IBVERBS_PRIVATE_" #node, names)

#define SYMBOLS_SINCE_34(node, at)                                                               \
  PRIVATE(not_supported, node, at, NOT_SUPPORTED_SINCE_34);                                      \
  PRIVATE(minus_one, node, at, "ibv_cmd_poll_cq, ibv_read_ibdev_sysfs_file");                    \
  PRIVATE(null, node, at, "_verbs_init_and_alloc_context, verbs_open_device");                   \
  PRIVATE(zero, node, at, "__ioctl_final_num_attrs");                                            \
  PRIVATE(nothing, node, at, "__verbs_log, verbs_init_cq, verbs_set_ops, verbs_uninit_context"); \
  PRIVATE(gid_type, node, at, "ibv_query_gid_type");                                             \
  PRIVATE(flag, node, at, "verbs_allow_disassociate_destroy")

#define LATER_NODE(node)                                                                                \
  SYMBOLS_SINCE_34(node, "@");                                                                          \
  PRIVATE(not_supported, node, "@", NOT_SUPPORTED_SINCE_57);                                            \
  PRIVATE(null, node, "@", "ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_cc_shared_init, ibv_wr_opcode_str"); \
  PRIVATE(nothing, node, "@", "ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_free");                         \
  SYMBOLS(nothing, "plugfest_", "@@IBVERBS_PRIVATE_" #node, "verbs_register_driver_" #node)

SYMBOLS_SINCE_34(34, "@@");
SYMBOLS(nothing, "plugfest_", "@@IBVERBS_PRIVATE_34", "verbs_register_driver_34");
LATER_NODE(57);
LATER_NODE(58);
LATER_NODE(59);
LATER_NODE(60);
LATER_NODE(61);
LATER_NODE(62);
LATER_NODE(63);
LATER_NODE(64);
LATER_NODE(65);

// IBVERBS_1.0 is the ABI before 2007, with different structs. Programs of that ABI first call ibv_get_device_list,
// which returns no device, so they cannot call any other function.
SYMBOLS(not_supported, "plugfest_1_0_", "@IBVERBS_1.0",
        "ibv_attach_mcast, ibv_close_device, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_destroy_cq, "
        "ibv_destroy_qp, ibv_destroy_srq, ibv_detach_mcast, ibv_modify_qp, ibv_modify_srq, ibv_query_device, "
        "ibv_query_port, ibv_query_qp, ibv_query_srq, ibv_resize_cq");
SYMBOLS(minus_one, "plugfest_1_0_", "@IBVERBS_1.0",
        "ibv_get_async_event, ibv_get_cq_event, ibv_query_gid, ibv_query_pkey");
SYMBOLS(null, "plugfest_1_0_", "@IBVERBS_1.0",
        "ibv_alloc_pd, ibv_create_ah, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_get_device_guid, "
        "ibv_get_device_list, ibv_get_device_name, ibv_open_device, ibv_reg_mr");
SYMBOLS(nothing, "plugfest_1_0_", "@IBVERBS_1.0", "ibv_ack_async_event, ibv_ack_cq_events, ibv_free_device_list");

// Driver registration before IBVERBS_PRIVATE_34.
SYMBOLS(nothing, "plugfest_1_1_", "@IBVERBS_1.1", "ibv_register_driver");

// These need a kernel driver or hardware.
SYMBOLS(not_supported, "plugfest_now_", "@@IBVERBS_1.1", "ibv_resolve_eth_l2_from_gid");
SYMBOLS(null, "plugfest_now_", "@@IBVERBS_1.10", "ibv_import_device, ibv_import_mr, ibv_import_pd");
SYMBOLS(null, "plugfest_now_", "@@IBVERBS_1.13", "ibv_import_dm");
SYMBOLS(nothing, "plugfest_now_", "@@IBVERBS_1.13", "ibv_unimport_dm");
SYMBOLS(nothing, "plugfest_now_", "@@IBVERBS_1.10", "ibv_unimport_mr, ibv_unimport_pd");

// Newer than the oldest supported headers; these need device memory or a PCI function.
SYMBOLS(null, "plugfest_now_", "@@IBVERBS_1.15", "ibv_alloc_dmah, ibv_reg_mr_ex");
SYMBOLS(not_supported, "plugfest_now_", "@@IBVERBS_1.15", "ibv_dealloc_dmah");
SYMBOLS(minus_one, "plugfest_now_", "@@IBVERBS_1.16", "ibv_dm_export_dmabuf_fd");
SYMBOLS(null, "plugfest_now_", "@@IBVERBS_1.17", "ibv_alloc_buf, ibv_reg_buf_mr");
SYMBOLS(nothing, "plugfest_now_", "@@IBVERBS_1.17", "ibv_free_buf");
SYMBOLS(minus_one, "plugfest_now_", "@@IBVERBS_1.18", "ibv_export_buf_dmabuf_fd");
