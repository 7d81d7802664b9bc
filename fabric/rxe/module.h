// Whether the running kernel has the module that makes rxe devices.
#pragma once

#include <filesystem>
#include <string>

namespace plugfest::rxe {

constexpr const char* kModule = "rdma_rxe";

bool is_loaded();

/// Why there is no module to load, in words that end with a way out, or "" where modprobe has one. `release`: of the
/// running kernel, as uname has it; `modules`: the folder of all kernels' modules.
std::string why_absent(const std::string& release, const std::filesystem::path& modules = "/lib/modules");

/// As uname has it: "6.1.0-18-amd64".
std::string kernel_release();

}  // namespace plugfest::rxe
