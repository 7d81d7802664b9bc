// The sysfs view: files under /sys/class/infiniband for programs that read sysfs (NCCL for GID types, UCX, scripts).
#pragma once

#include <filesystem>
#include <span>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce {

/// Writes one folder per interface into `class_infiniband`, which is created if absent:
/// `roce_eth0/{node_guid,sys_image_guid,node_type,node_desc,fw_ver,hca_type,hw_rev,ports/1/…}`, and `device`, a link to
/// a folder with the files of a PCI function and `net/eth0`.
///
/// The files have the content and format of a kernel driver's attributes. Processes that use the device update the port
/// state, the GIDs (gid_table.h), and the counters in ports/1/counters and ports/1/hw_counters (counters/names.h). If
/// no process uses the device, call this function again to update the port state and the GIDs. Errors:
/// std::runtime_error that names the file. Thread-safe for different folders.
void write_sysfs_view(const std::filesystem::path& class_infiniband, std::span<const Interface> interfaces);

}  // namespace plugfest::roce
