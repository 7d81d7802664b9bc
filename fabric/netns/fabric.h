// A topology made real: a network and a mount namespace for each host, veth pairs between them, processes inside.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/netns/process/command.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

struct BuiltFabric;  // build.h

struct Options {
  /// Runs once for each host, inside its namespaces, after all links are up and before the constructor returns: the
  /// place to fill /sys/class/infiniband, which is an empty folder then. May throw; the host's name is put before the
  /// message.
  std::function<void(const topology::Host&)> prepare_host;

  /// Gives each host an interface `oob0` on one shared bridge, 10.255.0.0/16, beside the links of the graph.
  bool out_of_band = false;

  /// Hosts get no network namespaces: all interfaces lie in the caller's, eth0 of host a as "a-eth0"; see build_flat().
  /// For NICs that work in the machine's own namespace only.
  /// There is no oob0 then: all reach each other anyway.
  bool flat = false;
};

/// How a process ended, and what it printed.
struct Finished {
  int exit_code = 0;   ///< 128 plus the signal's number if a signal killed it
  std::string output;  ///< standard output and standard error in the order they came
};

/// Everything that a graph describes, alive for as long as the object.
///
/// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN over the namespaces it is in: see enter_sandbox(). The caller's own namespaces
/// are left as they are. Thread safety: all member functions may be called from several threads at once.
class Fabric {
 public:
  /// Builds it. Errors: std::runtime_error that names the host or link and the step that failed; nothing is left then.
  explicit Fabric(topology::Graph graph, Options options = {});

  /// One that another process has built and holds too, from the same graph and options. Nothing is prepared again.
  Fabric(topology::Graph graph, Options options, BuiltFabric&& built);

  /// Takes it down, unless another process holds it too. Processes that spawn() started and that still run are killed.
  ~Fabric();

  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  const topology::Graph& graph() const;

  /// The descriptors that keep it alive.
  const BuiltFabric& built() const;

  /// Address of a host's `oob0`. Only with Options::out_of_band.
  topology::Ipv4Address out_of_band_address(std::string_view host) const;

  // In the functions below `host` may be the name of a switch as well. A switch has a network namespace only: files,
  // /sys among them, look there as they do to the caller.

  /// Starts a process inside a host and returns its id, for the caller to wait for. It starts with no signal blocked
  /// and all signals at their defaults, and is killed when the process that holds the fabric ends. Errors:
  /// std::runtime_error if there is no such host, or with the reason why the program could not be executed.
  pid_t spawn(std::string_view host, const Command& command);

  /// Runs a program inside a host to its end, with standard input empty. Errors: as spawn().
  Finished run(std::string_view host, const std::vector<std::string>& argv);

  /// Calls a function on a thread of its own inside a host, and returns when it has. Sockets that it opens stay in the
  /// host. Errors: what the function throws.
  void call(std::string_view host, const std::function<void()>& function);

  /// Turns hardware-style UDP segmentation on (as it is at first) or off. Off, a capture on the interface shows the
  /// packets of a batch one by one, at a cost in speed. `interface`: eth0. Errors: std::runtime_error.
  void set_udp_segmentation(std::string_view host, std::string_view interface, bool on);

  /// Takes an interface down or up, as an administrator would. Its peer loses or regains the carrier; when both are up
  /// the link carries packets by the time that this returns. The address and
  /// the routes that the fabric had are there again when it is up; what else the kernel drops with it (IPv6 addresses
  /// and routes set by hand) does not come back.
  void set_interface_up(std::string_view host, std::string_view interface, bool up);

  /// Sets the largest IP packet of an interface. Its peer's stays.
  void set_interface_mtu(std::string_view host, std::string_view interface, int mtu_bytes);

  /// Replaces an interface's IPv4 address by another of the same subnet. Errors: std::runtime_error, then it may have
  /// none.
  void change_address(std::string_view host, std::string_view interface, topology::Ipv4Address from,
                      topology::Ipv4Address to);

 private:
  struct Parts;
  void await_link(std::string_view node, std::string_view interface);
  std::unique_ptr<Parts> parts_;
};

}  // namespace plugfest::netns
