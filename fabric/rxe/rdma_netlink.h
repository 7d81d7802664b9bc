// RDMA devices on top of network interfaces, made through the kernel's RDMA netlink.
#pragma once

#include <string>

namespace plugfest::rxe {

/// Puts the kernel's software RoCE on an interface of the calling thread's network namespace, as a device called
/// `name`. Needs CAP_NET_ADMIN in the first user namespace and the module rdma_rxe. Errors: std::runtime_error with the
/// kernel's reason.
void add_device(const std::string& name, const std::string& interface);

/// Removes it again. One that does not exist is none of its concern. Errors: std::runtime_error.
void remove_device(const std::string& name);

}  // namespace plugfest::rxe
