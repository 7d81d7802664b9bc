// Symbols that exist so that programs start. The functions fail with EOPNOTSUPP.
//
// IBVERBS_1.0 is the ABI before 2007, with different structs. Programs of that ABI first call ibv_get_device_list,
// which returns no device, so they cannot call any other function.
#include <cerrno>

#include "fabric/roce/verbs/abi/symbol_version.h"

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
