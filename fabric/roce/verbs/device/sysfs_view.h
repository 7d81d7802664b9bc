// The files under /sys/class/infiniband that show a host's NICs to programs which read sysfs instead of asking
// libibverbs (NCCL's GID types, UCX, perftest scripts, people).
#pragma once

#include <filesystem>
#include <span>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce {

/// Writes one folder per interface into `class_infiniband`, which is created if absent:
/// `roce_eth0/{node_guid,sys_image_guid,node_type,node_desc,fw_ver,hca_type,hw_rev,ports/1/…}`.
///
/// Under ports/1/counters and ports/1/hw_counters lies what the device has counted (counters/names.h); each process
/// that uses it keeps these up to date.
///
/// Plain files with the text that a kernel driver would give, a line feed at the end. `device` is left out: there is no
/// PCI function behind such a NIC, and programs take an absent link for that. The port's state and the GIDs
/// (gid_table.h) are followed by the processes that use the device; call it again to write the current values where
/// none does. Errors: std::runtime_error that names the file. Thread safety: none needed, no shared state.
void write_sysfs_view(const std::filesystem::path& class_infiniband, std::span<const Interface> interfaces);

/// The same for every NIC of the network namespace that the caller is in, see list_nic_interfaces(). Meant for the step
/// that prepares a host: there `class_infiniband` is /sys/class/infiniband of the host's own mount namespace.
void write_sysfs_view_of_this_host(const std::filesystem::path& class_infiniband);

}  // namespace plugfest::roce
