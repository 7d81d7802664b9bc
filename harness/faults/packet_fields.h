// The fields of packet faults, which are the same on the command line and in files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/faults/script.h"

namespace plugfest::faults {

/// Another name of "loss".
inline constexpr const char* kOtherNameOfLoss = "drop";

/// The names of the fields: "loss", "duplicate", "reorder", "corrupt", "delay".
std::vector<std::string> packet_fields();

/// Parses `value` and sets the field `name`, which may also be kOtherNameOfLoss. Returns false if the field does not
/// exist. Errors: std::runtime_error with the value.
bool set_packet_field(PacketFaults& packets, std::string_view name, std::string_view value);

/// Parses a decimal number. Errors: std::runtime_error with the text.
std::uint64_t parse_seed(std::string_view text);

}  // namespace plugfest::faults
