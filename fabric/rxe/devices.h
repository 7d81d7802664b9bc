// Creates rxe devices in the kernel, and selects the RDMA devices that the processes of a host see.
#pragma once

#include <string>
#include <vector>

namespace plugfest::rxe {

/// Creates the rxe device `name` on an interface in the calling thread's network namespace. Needs CAP_NET_ADMIN in the
/// initial user namespace and the module rdma_rxe. Errors: std::runtime_error with the kernel's reason.
void add_device(const std::string& name, const std::string& interface);

/// Removes a device if it exists. Errors: std::runtime_error.
void remove_device(const std::string& name);

/// Shows only the named RDMA devices of the machine in /sys/class/infiniband, /sys/class/infiniband_verbs and
/// /dev/infiniband of the calling thread's mount namespace. libibverbs ignores a device without a node in
/// /dev/infiniband. Call netns::enter_host_view() before. Errors: std::runtime_error.
void show_devices(const std::vector<std::string>& names);

}  // namespace plugfest::rxe
