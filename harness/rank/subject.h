// The plugin under test in this process.
#pragma once

#include "harness/plugin/library.h"

namespace plugfest::rank {

/// The plugin that the last Load has loaded. Errors: std::logic_error when none is loaded. The reference is valid until
/// the next Unload.
plugin::Library& library();

/// Its net. Errors: std::logic_error when none or another interface is loaded.
plugin::Net& subject();

}  // namespace plugfest::rank
