// Files of fault plans: one plan per line, `#` starts a comment.
//
//     # loss in both directions, delay on receipt
//     direction=both loss=1% seed=7
//     direction=in delay=50us jitter=10us
//
// In a host of a fabric, each NIC watches /sys/class/infiniband/<device>/faults. Other processes set
// PLUGFEST_ROCE_FAULTS_FILE to the path of a file.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/faults/plan.h"

namespace plugfest::roce {

/// Parses the content of a file. `name`: the file's name in error messages.
/// Errors: std::runtime_error "NAME:3: "loss=x": expected …".
std::vector<FaultPlan> parse_fault_file(std::string_view text, std::string_view name);

/// Errors: as parse_fault_file(), and "NAME: cannot be read: reason".
std::vector<FaultPlan> read_fault_file(const std::filesystem::path& file);

/// Replaces the file atomically. NICs that watch the file apply the plans within 10 ms. No plans: an empty file.
/// Errors: std::runtime_error that names the file.
void write_fault_file(const std::filesystem::path& file, std::span<const FaultPlan> plans);

/// Sets the faults of a device of this host for all present and future processes. The plans apply to every packet that
/// is sent, or read from the kernel, after this call. `device_folder`: /sys/class/infiniband/roce_eth0.
/// Errors: as write_fault_file().
void set_device_faults(const std::filesystem::path& device_folder, std::span<const FaultPlan> plans);

}  // namespace plugfest::roce
