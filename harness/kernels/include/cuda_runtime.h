// CUDA's language and device functions on the CPU. Stands before the toolkit's cuda_runtime.h in the include path of
// `plugfest nvcc`, which includes it first, as nvcc does. The host's part comes from the toolkit, as a C++ compiler
// sees it, without __CUDACC__.
#pragma once

// plugfest/launch.h defines it.
#define cudaLaunchKernelEx plugfest_toolkit_cudaLaunchKernelEx
#include_next <cuda_runtime.h>
#undef cudaLaunchKernelEx
#if __has_include(<nv/target>)
#include <nv/target>  // selects code for the host as long as __CUDACC__ is not defined
#endif

#include "plugfest/atomics.h"
#include "plugfest/intrinsics.h"
#include "plugfest/language.h"
#include "plugfest/launch.h"
#include "plugfest/math.h"
#include "plugfest/ptx.h"
#include "plugfest/warp.h"

// There is one compilation for host and device, with the features of compute capability 9.0.
#define __CUDACC__ 1
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ (CUDART_VERSION / 1000)
#define __CUDACC_VER_MINOR__ (CUDART_VERSION % 1000 / 10)

// Back ends of NCCL's GIN whose device code drives a real NIC. NCCL's headers permit to define these.
#define NCCL_GIN_GDAKI_ENABLE 0
#define NCCL_GIN_GPI_ENABLE 0
