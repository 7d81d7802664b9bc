// Which RDMA devices the processes of a host see.
#pragma once

#include <string>
#include <vector>

namespace plugfest::rxe {

/// In the calling thread's mount namespace: shows of the machine's RDMA devices those named and no other, under
/// /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband. libibverbs leaves out a device whose node it
/// does not find there. Expects what netns::enter_host_view() leaves. Errors: std::runtime_error.
void show_devices(const std::vector<std::string>& names);

}  // namespace plugfest::rxe
