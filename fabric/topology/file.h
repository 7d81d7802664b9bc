// Graphs from YAML files.
#pragma once

#include <filesystem>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// Reads a topology from a file such as
///
///     defaults:                                     # for links without a value of their own
///       {mtu: 9000, rate: 10Gbit, delay: 5us}
///     hosts: [a, b, c]
///     switches:
///       - {name: s1, subnet: 10.1.0.0/24}             # kind: bridge is the default
///       - {name: r1, kind: router, tier: 2}
///     links:
///       - {ends: [a, b], subnet: 192.168.1.0/24, rate: 1Gbit}
///       - {ends: [c, r1]}                             # subnet: the next free /30 of 10.0.0.0/8
///       - {ends: [a, s1]}                             # subnet: the bridge's
///
/// Required fields: `hosts` and `links`; `ends` of a link; `name` of a switch; `subnet` of a bridge.
/// Errors: std::runtime_error "topology FILE:LINE: …" that names the field.
Graph read_topology(const std::filesystem::path& path);

}  // namespace plugfest::topology
