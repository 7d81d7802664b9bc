// Describes an exception that no function of the plugin catches.
#pragma once

#include <string>

namespace plugfest::rank {

/// Makes the C++ runtime of the loaded library `path` describe an exception before it aborts. A library whose runtime
/// is linked statically keeps its own handler. Call it while the process makes no other call of the plugin.
void describe_exceptions_of(const std::string& path);

/// "std::runtime_error: no memory" once a thread aborts for such an exception; otherwise "". Async-signal-safe.
const char* uncaught_exception();

}  // namespace plugfest::rank
