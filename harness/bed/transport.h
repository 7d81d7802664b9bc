// What passes through the user-space NIC: whether a plugin uses it, how many packets, captures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "harness/bed/test_bed.h"
#include "harness/control/session.h"

namespace plugfest::bed {

/// The libibverbs of an initialised plugin's process.
struct VerbsLibrary {
  std::string path;  ///< empty if none is mapped
  bool is_nic = false;
};

/// Returns the libibverbs that the plugin has mapped after init, in a rank of the first path. Errors: those of
/// Lease::rank().
VerbsLibrary verbs_library(control::Session& session, const TestBed& bed);

/// Returns the number of RoCE packets that the user-space NICs of all hosts of `bed` have sent so far; 0 if hosts are
/// not namespaces.
std::uint64_t sent_packets(TestBed& bed);

/// Makes the user-space NICs of all interfaces() of `bed` capture to `file`; "" ends the capture. Requires
/// has_fabric(). Errors: std::runtime_error.
void capture_packets(TestBed& bed, const std::filesystem::path& file);

}  // namespace plugfest::bed
