// Reads fault scripts from YAML files. The fields of packet faults are the same on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
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

/// Reads a file. Errors: as read_script().
Script read_script_file(const std::filesystem::path& path, const topology::Graph& graph);

}  // namespace plugfest::faults
