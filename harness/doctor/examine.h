// Examines all modes of a machine, and prints the diagnosis as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// The mode of `plugfest run` without --nic.
inline constexpr const char* kDefaultMode = "fabric";

/// The mode of `plugfest doctor --plugin mesh`.
inline constexpr const char* kMeshMode = "mesh";

/// Names of all modes, as for --for, in the order of the report.
std::vector<std::string> mode_names();

/// Examines the modes `wanted`; all modes if `wanted` is empty. Changes nothing on the machine. Takes a few seconds at
/// most. `peers`: other hosts; mode mesh compares all pairs of them and of this machine. Errors: std::runtime_error for
/// an unknown mode.
Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted,
                  const std::vector<MeshHost>& peers = {});

std::vector<Finding> examine_fabric(const Machine& machine);
std::vector<Finding> examine_loopback(const Machine& machine);
std::vector<Finding> examine_rxe(const Machine& machine);
std::vector<Finding> examine_vm(const Machine& machine);
std::vector<Finding> examine_system(const Machine& machine);
std::vector<Finding> examine_mesh(const Machine& machine);
std::vector<Finding> examine_nccl(const Machine& machine);
std::vector<Finding> examine_tools(const Machine& machine);

/// One line per mode, then the findings of each mode. `color`: adds a terminal's escape sequences.
std::string to_text(const Diagnosis& diagnosis, bool color);

/// See docs/doctor.md for the format. `version`: plugfest's.
std::string to_json(Diagnosis diagnosis, const std::string& version);

/// Parses the host in the JSON of a diagnosis with mode mesh. `file`: its name, for the error. Errors:
/// std::runtime_error for any other text.
MeshHost read_mesh_host(std::string_view text, const std::string& file);

/// Compares all pairs of `hosts`: one finding for each pair, a warning if they share no subnet, or if its MTUs differ.
std::vector<Finding> examine_pairs(const std::vector<MeshHost>& hosts);

/// The NICs of this machine that the mesh plugin uses: active Ethernet ports with a RoCE v2 GID for an IP address.
MeshHost mesh_host(const Machine& machine);

}  // namespace plugfest::doctor
