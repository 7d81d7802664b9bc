// Uses the kernel's Soft-RoCE (rxe) as the NIC of a fabric's hosts: loads the module, creates and shows its devices.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "fabric/netns/supervision.h"
#include "fabric/topology/graph.h"

namespace plugfest::rxe {

constexpr const char* kModule = "rdma_rxe";

bool is_loaded();

/// Returns an error message with a remedy if modprobe cannot find the module, else "". `release`: the output of
/// `uname -r`; `modules`: the folder with the modules of all kernels.
std::string explain_missing_module(const std::string& release, const std::filesystem::path& modules = "/lib/modules");

/// The output of `uname -r`: "6.1.0-18-amd64".
std::string kernel_release();

/// The placement in which rxe devices work. Before Linux 7.1, rxe listens only in the initial network namespace, so all
/// interfaces must be in that namespace: see netns::Options::flat.
enum class Layout { kNamespaces, kFlat };

/// The description for users: "hosts in namespaces", "all hosts in one namespace".
std::string describe(Layout layout);

/// Prepares this machine for rxe devices, as long as the object exists.
class Rxe {
 public:
  /// `may_change_host`: permission to load the module rdma_rxe, and to unload it at the end. Never changes the netns
  /// mode of the machine's RDMA devices. Determines the layout with a probe device. Errors: std::runtime_error, one
  /// line: not root, no module, no verbs driver. Thread safety: call it while the process has one thread.
  explicit Rxe(bool may_change_host);

  Layout layout() const { return layout_; }

  /// For netns::Options::prepare_host: creates the host's devices, such as "a_eth0" on eth0 of host a, and hides all
  /// other devices from its processes. The kernel removes a device with its interface.
  void prepare_host(const topology::Host& host) const;

 private:
  std::unique_ptr<netns::ExitCleanup> unload_;
  Layout layout_ = Layout::kFlat;
};

}  // namespace plugfest::rxe
