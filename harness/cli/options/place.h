// Where a command does its work: a fabric that is built for it and ends with it, or one that is up.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/ground.h"
#include "fabric/live/live_fabric.h"
#include "fabric/live/state_folder.h"
#include "fabric/rxe/rxe.h"
#include "fabric/topology/graph.h"
#include "harness/cli/options/nic.h"

namespace plugfest::cli {

class Place {
 public:
  /// To be built. Errors: as topology::named().
  static Place built(const std::string& topology);
  /// Hosts that are addresses of this machine: no namespace is needed. Errors: as loopback::Layout.
  static Place on_loopback(const std::string& topology);
  /// The one that is up under a name. Errors: std::runtime_error that names those there are.
  static Place live(const std::string& name);
  /// The one that is up under `name` if there is a name; else the topology if one is given, else the only fabric that
  /// is up, else the triangle. Errors: std::runtime_error, also if several are up.
  static Place of(const std::string& name, const std::string& topology);

  /// Errors: std::runtime_error that names the hosts there are, unless `node` is one of them or a switch.
  void require_node(const std::string& node) const;

  const topology::Graph& graph() const { return graph_; }
  /// Of a fabric that is up.
  const std::optional<live::Record>& record() const { return record_; }

  /// Goes where ground() can be called: netns::enter_sandbox() or netns::join_sandbox(), or stays where this kind of
  /// NIC has it so. Errors: std::runtime_error, also if the kind cannot be had.
  std::optional<int> enter(const Nic& nic = {});
  /// To be called once. Errors: std::runtime_error if `out_of_band` is asked for and the fabric went up without.
  conformance::Ground ground(bool out_of_band);
  /// "all hosts in one namespace"; empty if each has its own, as usual. After enter().
  std::string layout() const;

 private:
  Place(topology::Graph graph, std::optional<live::Record> record);

  topology::Graph graph_;
  std::optional<live::Record> record_;
  std::optional<live::Joined> joined_;
  bool loopback_ = false;
  std::string kind_of_nic_;
  std::unique_ptr<rxe::Rxe> rxe_;
};

/// The user's live fabrics. Tells on standard error which were dead. Errors: std::runtime_error.
std::vector<live::Record> live_fabrics();

}  // namespace plugfest::cli
