// What programs of an emulated host find of its NICs in /sys and /dev.
#pragma once

namespace plugfest::roce {

/// Shows the NICs of the current network namespace (list_nic_interfaces()) in /sys/class/infiniband (sysfs_view.h), and
/// one character device per NIC, /dev/infiniband/uverbs2, that can be opened for reading and writing. It stands for
/// /dev/null: UCX only checks that it exists. The machine's /dev/infiniband is hidden.
///
/// The caller must be in a mount namespace of its own in which /sys/class/infiniband can be written. May be called
/// again after interfaces have changed. Errors: std::runtime_error. Thread safety: any thread in such a namespace.
void show_nics_of_this_host();

}  // namespace plugfest::roce
