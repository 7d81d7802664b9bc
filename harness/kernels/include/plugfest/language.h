// CUDA's keywords and built-in variables. The compiler front replaces __global__ and __shared__, which must therefore
// not be macros. Source: CUDA C++ Programming Guide 13.0, section 10.
#pragma once

#include <vector_types.h>

#include "plugfest_kernel.h"

#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __maxnreg__
#define __host__
#define __device__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// Not the attribute itself: libstdc++ writes __attribute__((__noinline__)).
#define __noinline__ __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)

namespace plugfest::kernels {

/// threadIdx and the like. The compiler front turns threadIdx.x into value(threadIdx).x, so that it has C's type, and
/// so that variables of the same names, as in `dim3 gridDim(4)`, stay what they are.
template <typename To, const Index* (*get)()>
struct Builtin {
  constexpr Builtin() = default;
  operator To() const { return value(); }
  const To& value() const {
    static_assert(sizeof(To) == sizeof(Index));
    return *reinterpret_cast<const To*>(get());
  }
};

template <typename To, const Index* (*get)()>
inline const To& value(const Builtin<To, get>& builtin) {
  return builtin.value();
}
template <typename Other>
inline Other&& value(Other&& other) {
  return static_cast<Other&&>(other);
}

/// What `extern __shared__ T name[];` declares outside functions.
template <typename T>
struct DynamicShared {
  operator T*() const { return static_cast<T*>(plugfest_kernel_dynamic_shared()); }
  template <typename Other>
  explicit operator Other*() const {
    return reinterpret_cast<Other*>(static_cast<T*>(*this));
  }
};

template <typename T>
inline T* value(const DynamicShared<T>& array) {
  return array;
}

}  // namespace plugfest::kernels

inline constexpr plugfest::kernels::Builtin<uint3, plugfest_kernel_thread_index> threadIdx;
inline constexpr plugfest::kernels::Builtin<uint3, plugfest_kernel_block_index> blockIdx;
inline constexpr plugfest::kernels::Builtin<dim3, plugfest_kernel_block_size> blockDim;
inline constexpr plugfest::kernels::Builtin<dim3, plugfest_kernel_grid_size> gridDim;
inline constexpr int warpSize = plugfest::kernels::kWarpSize;
