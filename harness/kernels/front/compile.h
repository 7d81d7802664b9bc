// `plugfest nvcc`: compiles and links CUDA sources for the CPU.
#pragma once

#include <string>

#include "harness/kernels/front/command_line.h"

namespace plugfest::kernels::front {

/// The paths of the files of this installation that a compilation needs.
struct Installation {
  std::string headers;    ///< the folder of plugfest_kernel.h
  std::string libraries;  ///< the folder of libplugfest-cuda.so
  std::string nccl;       ///< the path of libnccl.so.2; empty: none was found
};

/// Compiles the inputs and, without -c, links them. For each CUDA source: the compiler's preprocessor with this
/// project's headers before the toolkit's, rewrite(), the compiler. The compiler writes its messages to standard error.
/// Returns the exit code: 0, or 2 if the compiler or the linker has failed.
/// Errors: std::runtime_error for a missing file, compiler or header, and SourceError.
int compile(const CommandLine& line, const Installation& installation);

/// The folder with CUDA's cuda_runtime.h: in CUDA_HOME, in CUDA_PATH, or /usr/local/cuda/include. Empty if none
/// has one.
std::string cuda_headers();

}  // namespace plugfest::kernels::front
