// The frames of a fiber, as text with the lines of the source.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/kernels/run/context.h"

namespace plugfest::kernels {

/// Return addresses, innermost first. Only code that is compiled with frame pointers has frames.
using Frames = std::vector<const void*>;

/// The frames of a fiber that waits, whose stack begins at `stack`.
Frames frames_of(Context context, const std::byte* stack);
/// The frames of code that a signal has interrupted; see interrupted().
Frames frames_of_signal(const void* ucontext, const std::byte* stack);
/// The frames of the code that calls this function, on the stack that begins at `stack`.
Frames frames_of_caller(const std::byte* stack);

/// A line "    in FUNCTION at FILE:LINE" for each frame of the program, except this library's. Uses addr2line;
/// where there is none, "    in FUNCTION of FILE+OFFSET". Thread safety: any thread.
std::string text_of_frames(const Frames& frames);

}  // namespace plugfest::kernels
