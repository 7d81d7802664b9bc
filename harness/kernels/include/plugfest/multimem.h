// The multimem instructions of PTX: accesses to the same place in the memory of all devices of a multicast object.
// Source: PTX ISA 9.0, sections 9.7.9.14 to 9.7.9.16.
#pragma once

#include <cmath>

#include "plugfest/ptx.h"

extern "C" {
/// In libplugfest-cuda.so. members[i] becomes the address by which the CPU accesses the memory of the i-th device.
/// Returns the number of devices; 0 if `address` is not a multicast address; -1 if a device lacks memory there, or if
/// there are more than `capacity`.
int plugfest_cuda_multicast_members(const void* address, std::size_t bytes, void** members, int capacity);
}

namespace plugfest::kernels::ptx {

/// A pair of 16-bit numbers in a register. `Format`: from_bits() and to_bits() of one number.
template <typename Format>
struct Pair {
  std::uint32_t bits;

  template <typename Operation>
  Pair combine(const Pair& other, Operation operation) const {
    const auto half = [&](int shift) {
      const float a = Format::from_bits(static_cast<std::uint16_t>(bits >> shift));
      const float b = Format::from_bits(static_cast<std::uint16_t>(other.bits >> shift));
      return static_cast<std::uint32_t>(Format::to_bits(operation(a, b))) << shift;
    };
    return {half(0) | half(16)};
  }
};

/// bf16: the upper half of a float.
struct Bfloat {
  static float from_bits(std::uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
  static std::uint16_t to_bits(float value) {
    const unsigned bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to the nearest, ties to even
  }
};

/// f16: 1 bit of sign, 5 of exponent, 10 of fraction.
struct Half {
  static float from_bits(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 31) value = fraction == 0 ? __builtin_inff() : __builtin_nanf("");
    return (bits & 0x8000) != 0 ? -value : value;
  }
  static std::uint16_t to_bits(float value) {
    const unsigned sign = __float_as_uint(value) >> 16 & 0x8000;
    const float size = std::fabs(value);
    if (value != value) return 0x7fff;
    if (size == 0) return static_cast<std::uint16_t>(sign);  // frexp() gives no exponent
    if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00);
    int exponent = 0;
    std::frexp(size, &exponent);
    const int scale = exponent - 11 < -24 ? -24 : exponent - 11;  // the weight of the last bit
    const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -scale)));
    // A fraction that rounds up to 2048 gives the next exponent.
    return static_cast<std::uint16_t>(sign | ((static_cast<unsigned>(scale + 24) << 10) + units));
  }
};

using Halves = Pair<Half>;
using Bfloats = Pair<Bfloat>;

template <typename Operation, typename T>
inline T combined(Operation operation, const T& a, const T& b) {
  return operation(a, b);
}
template <typename Operation, typename Format>
inline Pair<Format> combined(Operation operation, const Pair<Format>& a, const Pair<Format>& b) {
  return a.combine(b, operation);
}

/// The addresses that a multicast address stands for.
class Members {
 public:
  Members(const char* address, std::size_t bytes)
      : count_(plugfest_cuda_multicast_members(address, bytes, list_, kCapacity)) {
    if (count_ <= 0)
      plugfest_kernel_fault("a multimem instruction got an address that is not a multicast address", {"", 0});
  }
  void* const* begin() const { return list_; }
  void* const* end() const { return list_ + count_; }

 private:
  static constexpr int kCapacity = 128;
  void* list_[kCapacity];
  int count_;
};

/// multimem.ld_reduce.
template <typename T, typename Operation, typename... Registers>
inline void multimem_load(Operation operation, const char* address, Registers&... targets) {
  constexpr std::size_t kCount = sizeof...(Registers);
  T values[kCount];
  bool first = true;
  for (const void* member : Members(address, sizeof values)) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const T one = kernels::load<T>(static_cast<const T*>(member) + i, kAcquire);
      values[i] = first ? one : combined(operation, values[i], one);
    }
    first = false;
  }
  const T* next = values;
  (set(targets, *next++), ...);
}

/// multimem.st.
template <typename T, typename... Registers>
inline void multimem_store(char* address, const Registers&... sources) {
  for (void* member : Members(address, sizeof(T) * sizeof...(Registers)))
    store<T>(static_cast<char*>(member), kRelease, sources...);
}

/// multimem.red.
template <typename T, typename Operation, typename... Registers>
inline void multimem_update(Operation operation, char* address, const Registers&... sources) {
  const T values[] = {get<T>(sources)...};
  for (void* member : Members(address, sizeof values))
    for (std::size_t i = 0; i < sizeof...(Registers); ++i)
      kernels::update<T>(static_cast<T*>(member) + i, [&](T old) { return combined(operation, old, values[i]); });
}

}  // namespace plugfest::kernels::ptx
