// Accepting connections in a loop that polls its listener.
#pragma once

#include <cerrno>

namespace plugfest {

/// Whether `error`, the errno value of a failed accept(), means that descriptors or memory are used up. The connection
/// then stays in the kernel's queue and the listener stays readable, so a loop has to pause before it accepts again.
inline bool must_pause_accepting(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace plugfest
