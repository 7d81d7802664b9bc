// Ends the process with a message if a call of CUDA or NCCL fails.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#define CHECK_CUDA(call)                                               \
  if (const cudaError_t code = (call); code != cudaSuccess) {          \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code)); \
    std::exit(1);                                                      \
  }
#define CHECK_NCCL(call)                                               \
  if (const ncclResult_t code = (call); code != ncclSuccess) {         \
    std::fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(code)); \
    std::exit(1);                                                      \
  }
