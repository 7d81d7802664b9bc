// The fields that say how packets fare, the same on the command line and in a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/faults/script.h"

namespace plugfest::faults {

/// "loss", "duplicate", "reorder", "corrupt", "delay".
std::vector<std::string> packet_fields();

/// Sets the field called `name` to what `value` says; false when there is no such field. Errors: std::runtime_error
/// that quotes the value.
bool set_packet_field(PacketFaults& packets, std::string_view name, std::string_view value);

/// Errors: as above.
std::uint64_t parse_seed(std::string_view text);

}  // namespace plugfest::faults
