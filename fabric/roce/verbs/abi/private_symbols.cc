// The private version nodes of libibverbs, from which rdma-core's hardware drivers import.
//
// perftest, UCX and NCCL's mlx5 path link libmlx5 and libefa with BIND_NOW: a program starts only if all their symbols
// exist. These drivers never handle a device of this library, so the functions only fail with EOPNOTSUPP. The node name
// has the version of the private interface: 34 up to rdma-core 56, then one number per release that changed it.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "fabric/roce/verbs/abi/abi_edge.h"

extern "C" {

// Targets of the symbols below. `used`: only assembler directives refer to them.
[[gnu::used]] int plugfest_private_not_supported() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

[[gnu::used]] void* plugfest_private_null() {
  errno = EOPNOTSUPP;
  return nullptr;
}

[[gnu::used]] int plugfest_private_minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

[[gnu::used]] unsigned int plugfest_private_zero() { return 0; }

[[gnu::used]] void plugfest_private_nothing() {}

// Called by ibv_devinfo. The types are those of sysfs: 0 for InfiniBand or RoCE v1, 1 for RoCE v2.
[[gnu::used]] int plugfest_private_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type) {
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
[[gnu::used]] bool plugfest_private_flag = false;

}  // extern "C"

// Symbols of node 34 and all later nodes.
#define SYMBOLS_SINCE_34(X)                         \
  X(__ioctl_final_num_attrs, zero);                 \
  X(__verbs_log, nothing);                          \
  X(_verbs_init_and_alloc_context, null);           \
  X(ibv_cmd_poll_cq, minus_one);                    \
  X(ibv_query_gid_type, gid_type);                  \
  X(ibv_read_ibdev_sysfs_file, minus_one);          \
  X(verbs_allow_disassociate_destroy, flag);        \
  X(verbs_init_cq, nothing);                        \
  X(verbs_open_device, null);                       \
  X(verbs_set_ops, nothing);                        \
  X(verbs_uninit_context, nothing);                 \
  X(execute_ioctl, not_supported);                  \
  X(ibv_cmd_advise_mr, not_supported);              \
  X(ibv_cmd_alloc_dm, not_supported);               \
  X(ibv_cmd_alloc_mw, not_supported);               \
  X(ibv_cmd_alloc_pd, not_supported);               \
  X(ibv_cmd_attach_mcast, not_supported);           \
  X(ibv_cmd_close_xrcd, not_supported);             \
  X(ibv_cmd_create_ah, not_supported);              \
  X(ibv_cmd_create_counters, not_supported);        \
  X(ibv_cmd_create_cq, not_supported);              \
  X(ibv_cmd_create_cq_ex, not_supported);           \
  X(ibv_cmd_create_flow, not_supported);            \
  X(ibv_cmd_create_flow_action_esp, not_supported); \
  X(ibv_cmd_create_qp, not_supported);              \
  X(ibv_cmd_create_qp_ex, not_supported);           \
  X(ibv_cmd_create_qp_ex2, not_supported);          \
  X(ibv_cmd_create_rwq_ind_table, not_supported);   \
  X(ibv_cmd_create_srq, not_supported);             \
  X(ibv_cmd_create_srq_ex, not_supported);          \
  X(ibv_cmd_create_wq, not_supported);              \
  X(ibv_cmd_dealloc_mw, not_supported);             \
  X(ibv_cmd_dealloc_pd, not_supported);             \
  X(ibv_cmd_dereg_mr, not_supported);               \
  X(ibv_cmd_destroy_ah, not_supported);             \
  X(ibv_cmd_destroy_counters, not_supported);       \
  X(ibv_cmd_destroy_cq, not_supported);             \
  X(ibv_cmd_destroy_flow, not_supported);           \
  X(ibv_cmd_destroy_flow_action, not_supported);    \
  X(ibv_cmd_destroy_qp, not_supported);             \
  X(ibv_cmd_destroy_rwq_ind_table, not_supported);  \
  X(ibv_cmd_destroy_srq, not_supported);            \
  X(ibv_cmd_destroy_wq, not_supported);             \
  X(ibv_cmd_detach_mcast, not_supported);           \
  X(ibv_cmd_free_dm, not_supported);                \
  X(ibv_cmd_get_context, not_supported);            \
  X(ibv_cmd_modify_cq, not_supported);              \
  X(ibv_cmd_modify_flow_action_esp, not_supported); \
  X(ibv_cmd_modify_qp, not_supported);              \
  X(ibv_cmd_modify_qp_ex, not_supported);           \
  X(ibv_cmd_modify_srq, not_supported);             \
  X(ibv_cmd_modify_wq, not_supported);              \
  X(ibv_cmd_open_qp, not_supported);                \
  X(ibv_cmd_open_xrcd, not_supported);              \
  X(ibv_cmd_post_recv, not_supported);              \
  X(ibv_cmd_post_send, not_supported);              \
  X(ibv_cmd_post_srq_recv, not_supported);          \
  X(ibv_cmd_query_context, not_supported);          \
  X(ibv_cmd_query_device_any, not_supported);       \
  X(ibv_cmd_query_mr, not_supported);               \
  X(ibv_cmd_query_port, not_supported);             \
  X(ibv_cmd_query_qp, not_supported);               \
  X(ibv_cmd_query_srq, not_supported);              \
  X(ibv_cmd_read_counters, not_supported);          \
  X(ibv_cmd_reg_dm_mr, not_supported);              \
  X(ibv_cmd_reg_dmabuf_mr, not_supported);          \
  X(ibv_cmd_reg_mr, not_supported);                 \
  X(ibv_cmd_req_notify_cq, not_supported);          \
  X(ibv_cmd_rereg_mr, not_supported);               \
  X(ibv_cmd_resize_cq, not_supported)

// Symbols of node 57 and all later nodes.
#define SYMBOLS_SINCE_57(X)                   \
  X(ibv_dmabuf_heap_alloc, null);             \
  X(ibv_dmabuf_heap_cc_shared_init, null);    \
  X(ibv_dmabuf_heap_destroy, nothing);        \
  X(ibv_dmabuf_heap_free, nothing);           \
  X(ibv_wr_opcode_str, null);                 \
  X(ibv_cmd_alloc_dmah, not_supported);       \
  X(ibv_cmd_create_cq_ex2, not_supported);    \
  X(ibv_cmd_export_dmabuf_fd, not_supported); \
  X(ibv_cmd_free_dmah, not_supported);        \
  X(ibv_cmd_query_port_speed, not_supported); \
  X(ibv_cmd_reg_mr_ex, not_supported)

#define IN_NODE(name, what, node, at) \
  PLUGFEST_SYMBOL_VERSION(plugfest_private_##what, plugfest_##node##_##name, name, at "IBVERBS_PRIVATE_" #node)

#define IN_NODE_34(name, what) IN_NODE(name, what, 34, "@@")
SYMBOLS_SINCE_34(IN_NODE_34);
IN_NODE(verbs_register_driver_34, nothing, 34, "@@");

#define IN_NODE_57(name, what) IN_NODE(name, what, 57, "@")
SYMBOLS_SINCE_34(IN_NODE_57);
SYMBOLS_SINCE_57(IN_NODE_57);
IN_NODE(verbs_register_driver_57, nothing, 57, "@@");

#define IN_NODE_58(name, what) IN_NODE(name, what, 58, "@")
SYMBOLS_SINCE_34(IN_NODE_58);
SYMBOLS_SINCE_57(IN_NODE_58);
IN_NODE(verbs_register_driver_58, nothing, 58, "@@");

#define IN_NODE_59(name, what) IN_NODE(name, what, 59, "@")
SYMBOLS_SINCE_34(IN_NODE_59);
SYMBOLS_SINCE_57(IN_NODE_59);
IN_NODE(verbs_register_driver_59, nothing, 59, "@@");

#define IN_NODE_60(name, what) IN_NODE(name, what, 60, "@")
SYMBOLS_SINCE_34(IN_NODE_60);
SYMBOLS_SINCE_57(IN_NODE_60);
IN_NODE(verbs_register_driver_60, nothing, 60, "@@");

#define IN_NODE_61(name, what) IN_NODE(name, what, 61, "@")
SYMBOLS_SINCE_34(IN_NODE_61);
SYMBOLS_SINCE_57(IN_NODE_61);
IN_NODE(verbs_register_driver_61, nothing, 61, "@@");

#define IN_NODE_62(name, what) IN_NODE(name, what, 62, "@")
SYMBOLS_SINCE_34(IN_NODE_62);
SYMBOLS_SINCE_57(IN_NODE_62);
IN_NODE(verbs_register_driver_62, nothing, 62, "@@");

#define IN_NODE_63(name, what) IN_NODE(name, what, 63, "@")
SYMBOLS_SINCE_34(IN_NODE_63);
SYMBOLS_SINCE_57(IN_NODE_63);
IN_NODE(verbs_register_driver_63, nothing, 63, "@@");

#define IN_NODE_64(name, what) IN_NODE(name, what, 64, "@")
SYMBOLS_SINCE_34(IN_NODE_64);
SYMBOLS_SINCE_57(IN_NODE_64);
IN_NODE(verbs_register_driver_64, nothing, 64, "@@");

#define IN_NODE_65(name, what) IN_NODE(name, what, 65, "@")
SYMBOLS_SINCE_34(IN_NODE_65);
SYMBOLS_SINCE_57(IN_NODE_65);
IN_NODE(verbs_register_driver_65, nothing, 65, "@@");

// Symbols that exist so that programs start. The functions fail with EOPNOTSUPP.
//
// IBVERBS_1.0 is the ABI before 2007, with different structs. Programs of that ABI first call ibv_get_device_list,
// which returns no device, so they cannot call any other function.

extern "C" {

[[gnu::used]] int plugfest_unsupported_not_supported() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

[[gnu::used]] void* plugfest_unsupported_null() {
  errno = EOPNOTSUPP;
  return nullptr;
}

[[gnu::used]] int plugfest_unsupported_minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

[[gnu::used]] void plugfest_unsupported_nothing() {}

}  // extern "C"

#define LEGACY_SYMBOL(name, what) \
  PLUGFEST_SYMBOL_VERSION(plugfest_unsupported_##what, plugfest_1_0_##name, name, "@IBVERBS_1.0")

LEGACY_SYMBOL(ibv_ack_async_event, nothing);
LEGACY_SYMBOL(ibv_ack_cq_events, nothing);
LEGACY_SYMBOL(ibv_alloc_pd, null);
LEGACY_SYMBOL(ibv_attach_mcast, not_supported);
LEGACY_SYMBOL(ibv_close_device, not_supported);
LEGACY_SYMBOL(ibv_create_ah, null);
LEGACY_SYMBOL(ibv_create_cq, null);
LEGACY_SYMBOL(ibv_create_qp, null);
LEGACY_SYMBOL(ibv_create_srq, null);
LEGACY_SYMBOL(ibv_dealloc_pd, not_supported);
LEGACY_SYMBOL(ibv_dereg_mr, not_supported);
LEGACY_SYMBOL(ibv_destroy_ah, not_supported);
LEGACY_SYMBOL(ibv_destroy_cq, not_supported);
LEGACY_SYMBOL(ibv_destroy_qp, not_supported);
LEGACY_SYMBOL(ibv_destroy_srq, not_supported);
LEGACY_SYMBOL(ibv_detach_mcast, not_supported);
LEGACY_SYMBOL(ibv_free_device_list, nothing);
LEGACY_SYMBOL(ibv_get_async_event, minus_one);
LEGACY_SYMBOL(ibv_get_cq_event, minus_one);
LEGACY_SYMBOL(ibv_get_device_guid, null);
LEGACY_SYMBOL(ibv_get_device_list, null);
LEGACY_SYMBOL(ibv_get_device_name, null);
LEGACY_SYMBOL(ibv_modify_qp, not_supported);
LEGACY_SYMBOL(ibv_modify_srq, not_supported);
LEGACY_SYMBOL(ibv_open_device, null);
LEGACY_SYMBOL(ibv_query_device, not_supported);
LEGACY_SYMBOL(ibv_query_gid, minus_one);
LEGACY_SYMBOL(ibv_query_pkey, minus_one);
LEGACY_SYMBOL(ibv_query_port, not_supported);
LEGACY_SYMBOL(ibv_query_qp, not_supported);
LEGACY_SYMBOL(ibv_query_srq, not_supported);
LEGACY_SYMBOL(ibv_reg_mr, null);
LEGACY_SYMBOL(ibv_resize_cq, not_supported);

#define UNSUPPORTED_SYMBOL(name, what, node) \
  PLUGFEST_SYMBOL_VERSION(plugfest_unsupported_##what, plugfest_now_##name, name, "@@IBVERBS_" node)

// Driver registration before IBVERBS_PRIVATE_34.
PLUGFEST_SYMBOL_VERSION(plugfest_unsupported_nothing, plugfest_1_1_ibv_register_driver, ibv_register_driver,
                        "@IBVERBS_1.1");

// These need a kernel driver, hardware, or a connection manager.
UNSUPPORTED_SYMBOL(ibv_attach_mcast, not_supported, "1.1");
UNSUPPORTED_SYMBOL(ibv_copy_ah_attr_from_kern, nothing, "1.1");
UNSUPPORTED_SYMBOL(ibv_copy_path_rec_from_kern, nothing, "1.0");
UNSUPPORTED_SYMBOL(ibv_copy_path_rec_to_kern, nothing, "1.0");
UNSUPPORTED_SYMBOL(ibv_copy_qp_attr_from_kern, nothing, "1.0");
UNSUPPORTED_SYMBOL(ibv_detach_mcast, not_supported, "1.1");
UNSUPPORTED_SYMBOL(ibv_import_device, null, "1.10");
UNSUPPORTED_SYMBOL(ibv_import_dm, null, "1.13");
UNSUPPORTED_SYMBOL(ibv_import_mr, null, "1.10");
UNSUPPORTED_SYMBOL(ibv_import_pd, null, "1.10");
UNSUPPORTED_SYMBOL(ibv_resolve_eth_l2_from_gid, not_supported, "1.1");
UNSUPPORTED_SYMBOL(ibv_unimport_dm, nothing, "1.13");
UNSUPPORTED_SYMBOL(ibv_unimport_mr, nothing, "1.10");
UNSUPPORTED_SYMBOL(ibv_unimport_pd, nothing, "1.10");

// Newer than the oldest supported headers; these need device memory or a PCI function.
UNSUPPORTED_SYMBOL(ibv_alloc_dmah, null, "1.15");
UNSUPPORTED_SYMBOL(ibv_dealloc_dmah, not_supported, "1.15");
UNSUPPORTED_SYMBOL(ibv_reg_mr_ex, null, "1.15");
UNSUPPORTED_SYMBOL(ibv_dm_export_dmabuf_fd, minus_one, "1.16");
UNSUPPORTED_SYMBOL(ibv_alloc_buf, null, "1.17");
UNSUPPORTED_SYMBOL(ibv_free_buf, nothing, "1.17");
UNSUPPORTED_SYMBOL(ibv_reg_buf_mr, null, "1.17");
UNSUPPORTED_SYMBOL(ibv_export_buf_dmabuf_fd, minus_one, "1.18");
