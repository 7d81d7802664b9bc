// The toolkit's bfloat16 types, as a C++ compiler for the host sees them: the device's part is PTX.
#pragma once
#pragma push_macro("__CUDACC__")
#pragma push_macro("__CUDA_ARCH__")
#undef __CUDACC__
#undef __CUDA_ARCH__
#include_next <cuda_bf16.h>
#pragma pop_macro("__CUDACC__")
#pragma pop_macro("__CUDA_ARCH__")
