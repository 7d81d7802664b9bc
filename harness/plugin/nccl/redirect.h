// Replaces a function of a loaded library in the memory of this process.
#pragma once

namespace plugfest::plugin {

/// Overwrites the first bytes of `function` (14 on x86-64, 16 on aarch64; the function must not be shorter) with a jump
/// to `target`. No other thread may execute code of its pages meanwhile.
/// Errors: false with errno set when the memory cannot be made writable; ENOSYS on other architectures.
bool redirect(void* function, const void* target);

}  // namespace plugfest::plugin
