// Names that are there so that a program starts, and that fail with EOPNOTSUPP when it calls them.
//
// Among them node IBVERBS_1.0, libibverbs as it was before 2007, with other structs. Its programs begin with
// ibv_get_device_list, which finds no device; nothing else can then be called.
#include <cerrno>

#include "fabric/roce/verbs/abi/symbol_version.h"

extern "C" {

[[gnu::used]] int plugfest_unoffered_not_supported() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

[[gnu::used]] void* plugfest_unoffered_null() {
  errno = EOPNOTSUPP;
  return nullptr;
}

[[gnu::used]] int plugfest_unoffered_minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

[[gnu::used]] void plugfest_unoffered_nothing() {}

}  // extern "C"

#define LEGACY_NAME(name, what) \
  PLUGFEST_SYMBOL_VERSION(plugfest_unoffered_##what, plugfest_1_0_##name, name, "@IBVERBS_1.0")

LEGACY_NAME(ibv_ack_async_event, nothing);
LEGACY_NAME(ibv_ack_cq_events, nothing);
LEGACY_NAME(ibv_alloc_pd, null);
LEGACY_NAME(ibv_attach_mcast, not_supported);
LEGACY_NAME(ibv_close_device, not_supported);
LEGACY_NAME(ibv_create_ah, null);
LEGACY_NAME(ibv_create_cq, null);
LEGACY_NAME(ibv_create_qp, null);
LEGACY_NAME(ibv_create_srq, null);
LEGACY_NAME(ibv_dealloc_pd, not_supported);
LEGACY_NAME(ibv_dereg_mr, not_supported);
LEGACY_NAME(ibv_destroy_ah, not_supported);
LEGACY_NAME(ibv_destroy_cq, not_supported);
LEGACY_NAME(ibv_destroy_qp, not_supported);
LEGACY_NAME(ibv_destroy_srq, not_supported);
LEGACY_NAME(ibv_detach_mcast, not_supported);
LEGACY_NAME(ibv_free_device_list, nothing);
LEGACY_NAME(ibv_get_async_event, minus_one);
LEGACY_NAME(ibv_get_cq_event, minus_one);
LEGACY_NAME(ibv_get_device_guid, null);
LEGACY_NAME(ibv_get_device_list, null);
LEGACY_NAME(ibv_get_device_name, null);
LEGACY_NAME(ibv_modify_qp, not_supported);
LEGACY_NAME(ibv_modify_srq, not_supported);
LEGACY_NAME(ibv_open_device, null);
LEGACY_NAME(ibv_query_device, not_supported);
LEGACY_NAME(ibv_query_gid, minus_one);
LEGACY_NAME(ibv_query_pkey, minus_one);
LEGACY_NAME(ibv_query_port, not_supported);
LEGACY_NAME(ibv_query_qp, not_supported);
LEGACY_NAME(ibv_query_srq, not_supported);
LEGACY_NAME(ibv_reg_mr, null);
LEGACY_NAME(ibv_resize_cq, not_supported);

#define UNOFFERED(name, what, node) \
  PLUGFEST_SYMBOL_VERSION(plugfest_unoffered_##what, plugfest_now_##name, name, "@@IBVERBS_" node)

// How drivers announced themselves before node 34.
PLUGFEST_SYMBOL_VERSION(plugfest_unoffered_nothing, plugfest_1_1_ibv_register_driver, ibv_register_driver,
                        "@IBVERBS_1.1");

// What needs a kernel driver, hardware, or a connection manager behind the NIC.
UNOFFERED(ibv_attach_mcast, not_supported, "1.1");
UNOFFERED(ibv_copy_ah_attr_from_kern, nothing, "1.1");
UNOFFERED(ibv_copy_path_rec_from_kern, nothing, "1.0");
UNOFFERED(ibv_copy_path_rec_to_kern, nothing, "1.0");
UNOFFERED(ibv_copy_qp_attr_from_kern, nothing, "1.0");
UNOFFERED(ibv_detach_mcast, not_supported, "1.1");
UNOFFERED(ibv_import_device, null, "1.10");
UNOFFERED(ibv_import_dm, null, "1.13");
UNOFFERED(ibv_import_mr, null, "1.10");
UNOFFERED(ibv_import_pd, null, "1.10");
UNOFFERED(ibv_rereg_mr, not_supported, "1.1");
UNOFFERED(ibv_resolve_eth_l2_from_gid, not_supported, "1.1");
UNOFFERED(ibv_unimport_dm, nothing, "1.13");
UNOFFERED(ibv_unimport_mr, nothing, "1.10");
UNOFFERED(ibv_unimport_pd, nothing, "1.10");

// Newer than the headers this is built with, and nothing that a NIC without device memory or a PCI function can offer.
UNOFFERED(ibv_alloc_dmah, null, "1.15");
UNOFFERED(ibv_dealloc_dmah, not_supported, "1.15");
UNOFFERED(ibv_reg_mr_ex, null, "1.15");
UNOFFERED(ibv_dm_export_dmabuf_fd, minus_one, "1.16");
UNOFFERED(ibv_alloc_buf, null, "1.17");
UNOFFERED(ibv_free_buf, nothing, "1.17");
UNOFFERED(ibv_reg_buf_mr, null, "1.17");
