// The NIC kind `roce`: RoCEv2 in user space on a fabric of namespaces.
#pragma once

#include "fabric/netns/build.h"
#include "fabric/netns/fabric.h"
#include "harness/bed/test_bed.h"
#include "harness/control/process/launcher.h"

namespace plugfest::bed {

/// Returns the options for a fabric with this NIC on every interface: each host gets the sysfs view, and each NIC the
/// delay of its link. `out_of_band`: hosts also get oob0.
netns::Options roce_fabric_options(const topology::Graph& graph, bool out_of_band);

/// Returns the variables with which programs in a host find its NICs: the folder of the drop-in libibverbs comes first
/// in LD_LIBRARY_PATH. Errors: std::runtime_error if that variable cannot express it.
control::Environment roce_environment();

/// Builds a fabric with this NIC. Requires namespaces: see netns::enter_sandbox(). Errors: std::runtime_error.
TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band);

/// Uses a background fabric that was built with roce_fabric_options() and the same arguments. Errors:
/// std::runtime_error.
TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band, netns::BuiltFabric&& built);

}  // namespace plugfest::bed
