// Where this build keeps the libraries that ranks load.
#pragma once

#include <string>

namespace plugfest::testbed {

/// Returns the folder lib/ beside the running program's own folder. It holds the NIC, the plugins and the mutants.
/// Errors: std::filesystem::filesystem_error if /proc is not mounted.
std::string library_folder();

}  // namespace plugfest::testbed
