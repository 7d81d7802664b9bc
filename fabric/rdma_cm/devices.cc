#include "fabric/rdma_cm/devices.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <algorithm>

#include "fabric/system/file.h"

namespace plugfest::rdma_cm {
namespace {

// The functions of the libibverbs that the program has loaded. This library does not link it, since it is loaded into
// every program, including programs without RDMA.
class Verbs final : public Devices {
 public:
  Verbs() {
    void* const library = ::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    decltype(&ibv_get_device_list) list = nullptr;
    decltype(&ibv_open_device) open = nullptr;
    const bool found = find(list, "ibv_get_device_list") && find(open, "ibv_open_device") &&
                       find(guid_, "ibv_get_device_guid") && find(index_, "ibv_get_device_index") &&
                       find(query_gid_, "ibv_query_gid") && find(query_port_, "ibv_query_port");
    if (!found) return;
    int count = 0;
    ibv_device** const devices = list(&count);
    for (int i = 0; i < count; ++i)
      if (ibv_context* const context = open(devices[i])) contexts_.push_back(context);
    // The list is never freed, because it keeps the devices.
  }

  std::optional<LocalDevice> with(const Address& address) const override {
    std::optional<LocalDevice> found;
    for_each_address([&](const Address& candidate, const LocalDevice& device) {
      if (candidate == address) found = device;
      return found.has_value();
    });
    return found;
  }

  std::vector<Address> addresses() const override {
    std::vector<Address> all;
    for_each_address([&](const Address& address, const LocalDevice&) {
      all.push_back(address);
      return false;
    });
    return all;
  }

 private:
  // Calls `visit` with each address and its device, until it returns true. A table may list an address twice.
  template <typename Visit>
  void for_each_address(Visit visit) const {
    for (ibv_context* const context : contexts_) {
      ibv_port_attr port = {};
      // The exported function fills the fields of the first versions, up to `link_layer`.
      if (query_port_(context, 1, reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) continue;
      std::vector<Address> visited = {Address()};
      for (int i = 0; i < port.gid_tbl_len; ++i) {
        ibv_gid gid = {};
        if (query_gid_(context, 1, i, &gid) != 0 || std::ranges::find(visited, Address(gid)) != visited.end()) continue;
        visited.emplace_back(gid);
        const LocalDevice device = {.node_guid = guid_(context->device),
                                    .index = static_cast<std::uint32_t>(index_(context->device)),
                                    .port = 1,
                                    .gid_index = static_cast<std::uint8_t>(i),
                                    .mtu = static_cast<std::uint8_t>(port.active_mtu)};
        if (visit(Address(gid), device)) return;
      }
    }
  }

  std::vector<ibv_context*> contexts_;  // open until the process ends
  decltype(&ibv_get_device_guid) guid_ = nullptr;
  decltype(&ibv_get_device_index) index_ = nullptr;
  decltype(&ibv_query_gid) query_gid_ = nullptr;
  decltype(&(ibv_query_port)) query_port_ = nullptr;
};

}  // namespace

const Devices& program_devices() {
  static const auto* const devices = new Verbs;
  return *devices;
}

std::optional<Address> source_for(const Address& destination, int interface) {
  // connect() of a datagram socket chooses the route and sends nothing.
  const Descriptor probe(::socket(destination.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const roce::SocketAddress peer({.address = destination, .port = 1}, interface);
  if (!probe || ::connect(probe.get(), peer.get(), peer.length()) != 0) return std::nullopt;
  roce::SocketAddress own;
  socklen_t length = roce::SocketAddress::kCapacity;
  if (::getsockname(probe.get(), own.to_fill(), &length) != 0) return std::nullopt;
  return own.endpoint().address;
}

}  // namespace plugfest::rdma_cm
