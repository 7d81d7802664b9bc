// The plugin under test in this process, and the callbacks that NCCL would give it.
#pragma once

#include <mutex>
#include <string>

#include "harness/plugin/library.h"
#include "harness/plugin/net.h"
#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// Errors: plugin::LoadError in the loader's words; std::logic_error when one is loaded already.
LoadAnswer load_subject(const Load& request);

/// dlclose. Nothing if none is loaded.
void unload_subject();

/// Errors: std::logic_error when none is loaded. The reference lasts until unload_subject.
plugin::Net& subject();

}  // namespace plugfest::rank
