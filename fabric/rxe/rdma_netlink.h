// Creates and removes rxe devices through the kernel's RDMA netlink.
#pragma once

#include <string>

namespace plugfest::rxe {

/// Creates the rxe device `name` on an interface in the calling thread's network namespace. Needs CAP_NET_ADMIN in the
/// initial user namespace and the module rdma_rxe. Errors: std::runtime_error with the kernel's reason.
void add_device(const std::string& name, const std::string& interface);

/// Removes a device if it exists. Errors: std::runtime_error.
void remove_device(const std::string& name);

}  // namespace plugfest::rxe
