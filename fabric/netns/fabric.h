// A running topology: a network and a mount namespace for each host, veth pairs as links, processes inside.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/netns/command.h"
#include "fabric/system/process.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

struct BuiltFabric;  // build.h

struct Options {
  /// Called once for each host, inside its namespaces, after all links are up and before the constructor returns. It
  /// can create devices in /sys/class/infiniband, which is an empty folder. It may throw; the error then names the
  /// host.
  std::function<void(const topology::Host&)> prepare_host;

  /// Adds to each host an interface `oob0` on one shared bridge, 10.255.0.0/16.
  bool out_of_band = false;

  /// Creates all interfaces in the caller's network namespace, eth0 of host a as "a-eth0"; see build_flat(). For NICs
  /// that work only in the machine's own namespace. `out_of_band` has no effect, since all addresses are reachable.
  bool flat = false;
};

/// The hosts, switches and links of a graph. They exist as long as the object.
///
/// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN: see enter_sandbox(). Does not change the caller's own namespaces.
/// Thread safety: all member functions may be called from several threads at once.
class Fabric {
 public:
  /// Builds the fabric. Errors: std::runtime_error that names the host or link and the failed step; nothing remains.
  explicit Fabric(topology::Graph graph, Options options = {});

  /// Uses a fabric that another process has built from the same graph and options and also holds. Does not call
  /// Options::prepare_host.
  Fabric(topology::Graph graph, Options options, BuiltFabric&& built);

  /// Removes the fabric unless another process also holds it. Kills the processes that spawn() has started.
  ~Fabric();

  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  const topology::Graph& graph() const;

  /// The descriptors that keep the fabric alive.
  const BuiltFabric& built() const;

  /// The address of a host's `oob0`. Errors: std::runtime_error without Options::out_of_band.
  topology::Ipv4Address out_of_band_address(std::string_view host) const;

  // The functions below also accept the name of a switch as `host`. A switch has only a network namespace: its
  // processes see the caller's files, including /sys.

  /// Starts a process in a host and returns its id. The caller must wait for the process. No signal is blocked and all
  /// signal handlers are the defaults. The process is killed when this process exits.
  /// Errors: std::runtime_error if the host does not exist; CannotExecute if the program cannot be executed.
  pid_t spawn(std::string_view host, const Command& command);

  /// Runs a program in a host, with empty standard input, and waits until it has exited. Its standard output and
  /// standard error share one pipe. Errors: as spawn().
  Finished run(std::string_view host, const std::vector<std::string>& argv);

  /// Calls a function on a new thread inside a host and waits until it has returned. Sockets that the function opens
  /// belong to the host. Errors: what the function throws.
  void call(std::string_view host, const std::function<void()>& function);

  /// Turns UDP segmentation offload on (the default) or off. When off, a capture on the interface shows each packet of
  /// a batch separately, and sending is slower. `interface`: eth0. Errors: std::runtime_error.
  void set_udp_segmentation(std::string_view host, std::string_view interface, bool on);

  /// Sets an interface down or up (IFF_UP). Its peer loses or regains carrier. If both ends are up, the link carries
  /// packets when the function returns. Setting the interface up restores the address and the routes that the fabric
  /// had, but no other addresses and routes that the kernel removed, such as manually added ones.
  void set_interface_up(std::string_view host, std::string_view interface, bool up);

  /// Sets the MTU of an interface, not of its peer.
  void set_interface_mtu(std::string_view host, std::string_view interface, int mtu_bytes);

  /// Removes `from` from an interface if it has that IPv4 address, and adds `to`, of the same subnet, if it does not
  /// have it. Errors: std::runtime_error; the interface may then have no address.
  void change_address(std::string_view host, std::string_view interface, topology::Ipv4Address from,
                      topology::Ipv4Address to);

 private:
  struct Parts;
  void await_link(std::string_view node, std::string_view interface);
  std::unique_ptr<Parts> parts_;
};

}  // namespace plugfest::netns
