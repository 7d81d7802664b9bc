// Fault plans in a file: one plan per line, `#` begins a comment.
//
//     # both ends of this link lose a little, and what arrives is late
//     direction=both drop=1% seed=7
//     direction=in delay=50us jitter=10us
//
// Each NIC of a fabric's host follows /sys/class/infiniband/<device>/faults while it runs; a process elsewhere names a
// file by PLUGFEST_ROCE_FAULTS_FILE.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/faults/plan.h"

namespace plugfest::roce {

/// Reads the lines of a file. `name` is for messages. Errors: std::runtime_error "NAME:3: "drop=x": expected …".
std::vector<FaultPlan> parse_fault_file(std::string_view text, std::string_view name);

/// Errors: as parse_fault_file(), and "NAME: cannot be read: reason".
std::vector<FaultPlan> read_fault_file(const std::filesystem::path& file);

/// Puts the plans into a file, whole or not at all: whoever reads it meanwhile sees the plans before or these. None
/// makes an empty file. NICs that follow the file notice within 10 ms. Errors: std::runtime_error that names the file.
void write_fault_file(const std::filesystem::path& file, std::span<const FaultPlan> plans);

/// Sets the faults of a device of this host, for processes that run and those that come: its file `faults`. They hold
/// for every packet that is sent, or taken from the kernel, after this has returned. `device_folder`:
/// /sys/class/infiniband/roce_eth0. Errors: as write_fault_file().
void set_device_faults(const std::filesystem::path& device_folder, std::span<const FaultPlan> plans);

}  // namespace plugfest::roce
