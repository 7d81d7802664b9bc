// Checks for the kernel module rdma_rxe.
#pragma once

#include <filesystem>
#include <string>

namespace plugfest::rxe {

constexpr const char* kModule = "rdma_rxe";

/// Whether the module is loaded.
bool is_loaded();

/// Returns an error message with a remedy if modprobe cannot find the module, else "". `release`: the output of
/// `uname -r`; `modules`: the folder with the modules of all kernels.
std::string explain_missing_module(const std::string& release, const std::filesystem::path& modules = "/lib/modules");

/// The output of `uname -r`: "6.1.0-18-amd64".
std::string kernel_release();

}  // namespace plugfest::rxe
