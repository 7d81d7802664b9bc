// Makes one function of a loaded library be another, in this process only.
#pragma once

namespace plugfest::plugin {

/// Overwrites the beginning of `function` (14 bytes on x86-64, 16 on aarch64, which it must have) with a jump to
/// `target`. Not while another thread runs code of the pages it lies in. False with errno set when its memory cannot be
/// written; false with ENOSYS on other architectures.
bool redirect(void* function, const void* target);

}  // namespace plugfest::plugin
