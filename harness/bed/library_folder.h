// The folder of the libraries that ranks load.
#pragma once

#include <string>

#include "harness/control/process/launcher.h"

namespace plugfest::bed {

/// Returns the folder lib/ beside the running program's own folder. It holds the NIC, the plugins and the mutants.
/// Errors: std::filesystem::filesystem_error if /proc is not mounted.
std::string library_folder();

/// Makes the dynamic loader search the folder `name` of library_folder() before those of LD_LIBRARY_PATH in
/// `environment`, or of this process if it has none there. Errors: std::runtime_error if the variable cannot express
/// the path.
/// the path.
void search_first_in(const std::string& name, control::Environment& environment);

}  // namespace plugfest::bed
