// Translates CUDA to C++: launches, kernels, shared memory and PTX. Makes functions of NCCL that wait state what they
// wait for.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::kernels::front {

/// Rewrites the output of `g++ -E` for a CUDA source that includes this project's cuda_runtime.h. Line markers stay
/// correct, so that messages of the compiler and debuggers name the user's lines.
///
/// PTX that is not in the table of ptx.h becomes a call that the compiler reports if it generates code for it: unused
/// functions of headers may contain any PTX. Assembly statements in system headers stay unchanged, and so do those
/// whose text does not end with a semicolon, as PTX does. Errors: SourceError.
std::string rewrite(std::string_view text);

}  // namespace plugfest::kernels::front
