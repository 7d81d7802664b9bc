// Restricts the RDMA devices that the processes of a host see.
#pragma once

#include <string>
#include <vector>

namespace plugfest::rxe {

/// Shows only the named RDMA devices of the machine in /sys/class/infiniband, /sys/class/infiniband_verbs and
/// /dev/infiniband of the calling thread's mount namespace. libibverbs ignores a device without a node in
/// /dev/infiniband. Call netns::enter_host_view() before. Errors: std::runtime_error.
void show_devices(const std::vector<std::string>& names);

}  // namespace plugfest::rxe
