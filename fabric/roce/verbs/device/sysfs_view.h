// Shows the NICs of an emulated host in /sys and /dev, for programs that read sysfs (NCCL for GID types, UCX, scripts).
#pragma once

#include <filesystem>
#include <span>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce::verbs {

/// Shows the NICs of the current network namespace (list_nic_interfaces()) in /sys/class/infiniband, and
/// one character device per NIC, /dev/infiniband/uverbs2, that can be opened for reading and writing. The node is
/// /dev/null, because UCX only checks that it exists. The machine's /dev/infiniband is hidden.
///
/// The caller must be in a mount namespace of its own in which /sys/class/infiniband can be written. May be called
/// again after interfaces have changed. Errors: std::runtime_error. Thread safety: any thread in such a namespace.
void show_nics_of_this_host();

/// Writes one folder per interface into `class_infiniband`, which is created if absent:
/// `roce_eth0/{node_guid,sys_image_guid,node_type,node_desc,fw_ver,hca_type,hw_rev,ports/1/…}`, and `device`, a link to
/// a folder with the files of a PCI function and `net/eth0`.
///
/// The files have the content and format of a kernel driver's attributes. Processes that use the device update the port
/// state, the GIDs (gid_table.h), and the counters in ports/1/counters and ports/1/hw_counters (counters/counters.h).
/// If no process uses the device, call this function again to update the port state and the GIDs. Errors:
/// std::runtime_error that names the file. Thread-safe for different folders.
void write_sysfs_view(const std::filesystem::path& class_infiniband, std::span<const Interface> interfaces);

}  // namespace plugfest::roce::verbs
