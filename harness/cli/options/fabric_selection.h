// The fabric that a command works on: one that is built for the command, or a background fabric.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/live/live_fabric.h"
#include "fabric/live/state_folder.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"

namespace plugfest::cli {

class FabricSelection {
 public:
  /// A fabric that is built for the command. Errors: as topology::named().
  static FabricSelection built(const std::string& topology);
  /// The background fabric `name`. Errors: std::runtime_error that lists the background fabrics.
  static FabricSelection background(const std::string& name);
  /// The background fabric `name` if it is not empty; else a fabric of `topology` if that is not empty; else the only
  /// background fabric; else a triangle. Errors: std::runtime_error, also if several background fabrics are up.
  static FabricSelection of(const std::string& name, const std::string& topology);

  /// The topology of a background fabric. Errors: std::runtime_error if its record or topology file is damaged.
  static topology::Graph graph_of(const live::Record& record);

  /// Errors: std::runtime_error that lists the hosts, unless `node` is a host or a switch.
  void require_node(const std::string& node) const;

  const topology::Graph& graph() const { return graph_; }
  /// Only of a background fabric.
  const std::optional<live::Record>& record() const { return record_; }

  /// On a background fabric, waits until no other run uses it, and says so on standard error. The turn lasts until this
  /// process and those that it forks have exited. Call it before enter(). Errors: as live::StateFolder::take_turn().
  void take_turn();
  /// Enters the namespaces of a background fabric, or those that `nic` needs: as bed::NicKind::enter().
  std::optional<int> enter(bed::NicKind& nic);
  /// Builds the test bed, or uses the background fabric. Call it once, after enter(). Errors: std::runtime_error, also
  /// if `out_of_band` is set and the background fabric has no out-of-band network.
  bed::TestBed build(bed::NicKind& nic, bool out_of_band);

 private:
  FabricSelection(topology::Graph graph, std::optional<live::Record> record);

  topology::Graph graph_;
  std::optional<live::Record> record_;
  std::optional<live::Joined> joined_;
  Descriptor turn_;
};

/// Returns the background fabric `name`. Errors: std::runtime_error that lists the background fabrics.
live::Record background_fabric(const std::string& name);

/// Returns the user's background fabrics. Prints on standard error which of them were dead. Errors:
/// std::runtime_error.
std::vector<live::Record> background_fabrics();

}  // namespace plugfest::cli
