// Replaces functions that a loaded library imports.
#pragma once

namespace plugfest::plugin {

/// Replaces a function that a loaded library imports, for the calls of this library. `library`: dlopen's handle. No
/// other thread may call the function at the same time. Errors: false with errno set when the memory cannot be made
/// writable; ENOENT if the library does not import the function.
bool redirect_import(void* library, const char* function, const void* target);

}  // namespace plugfest::plugin
