// Reductions on arrays, in the types that NCCL's kernels compute in.
#include "harness/nccl/device/types.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace plugfest::nccl::device {
namespace {

// Calls `visit` with a value of the type that kernels compute in. Kernels treat signed integers as unsigned ones; the
// argument tells where that matters.
template <typename Visit>
void with_kernel_type(Type type, const Visit& visit) {
  with_type(type, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>)
      visit(std::make_unsigned_t<T>{});
    else
      visit(T{});
  });
}

template <typename T>
T from_bits(std::uint64_t bits) {
  T value{};
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(value));
  return value;
}

template <typename T, typename Combine>
void fold(T* into, const T* other, std::size_t count, Combine combine) {
  for (std::size_t i = 0; i < count; ++i) into[i] = combine(into[i], other[i]);
}

template <typename T>
void fold(const Reduction& reduction, T* into, const T* other, std::size_t count) {
  const std::uint64_t argument = reduction.argument;
  switch (reduction.op) {
    case Operator::kProduct:
      return fold(into, other, count, [](T a, T b) { return static_cast<T>(a * b); });
    case Operator::kMinMax:
      if constexpr (std::is_integral_v<T>) {
        const T mask = static_cast<T>(argument);
        return fold(into, other, count, [=](T a, T b) { return (a ^ mask) < (b ^ mask) ? a : b; });
      } else if constexpr (std::is_same_v<T, double>) {
        return fold(into, other, count,
                    [max = (argument & 1) != 0](T a, T b) { return max ? std::fmax(a, b) : std::fmin(a, b); });
      } else {
        return fold(into, other, count, [max = (argument & 1) != 0](T a, T b) {
          return T(max ? std::fmax(float(a), float(b)) : std::fmin(float(a), float(b)));
        });
      }
    default:
      return fold(into, other, count, [](T a, T b) { return static_cast<T>(a + b); });
  }
}

template <typename T>
void divide(T* values, std::size_t count, std::uint64_t argument) {
  if constexpr (std::is_integral_v<T>) {
    using Signed = std::make_signed_t<T>;
    const auto divisor = static_cast<std::int64_t>(argument >> 1);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = (argument & 1) != 0
                      ? static_cast<T>(static_cast<std::int64_t>(static_cast<Signed>(values[i])) / divisor)
                      : static_cast<T>(values[i] / static_cast<std::uint64_t>(divisor));
    }
  }
}

template <typename T>
void reduce(const Reduction& reduction, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
            std::size_t count, bool scale_first, bool finish) {
  constexpr std::size_t kBlock = 4096 / sizeof(T);
  std::array<T, kBlock> result, other;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = std::min(kBlock, count - at);
    std::memcpy(static_cast<void*>(result.data()), sources[0] + at * sizeof(T), n * sizeof(T));
    if (scale_first && reduction.op == Operator::kScaledSum) {
      const T factor = from_bits<T>(reduction.argument);
      for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<T>(result[i] * factor);
    }
    for (std::size_t s = 1; s < sources.size(); ++s) {
      std::memcpy(static_cast<void*>(other.data()), sources[s] + at * sizeof(T), n * sizeof(T));
      fold<T>(reduction, result.data(), other.data(), n);
    }
    if (finish && reduction.op == Operator::kSumThenDivide) divide(result.data(), n, reduction.argument);
    for (std::byte* const target : targets) std::memcpy(target + at * sizeof(T), result.data(), n * sizeof(T));
  }
}

}  // namespace

std::size_t size_of(Type type) {
  std::size_t size = 0;
  with_kernel_type(type, [&](auto value) { size = sizeof(value); });
  return size;
}

void combine(const Reduction& reduction, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
             std::size_t count, bool scale_first, bool finish) {
  const bool scales = scale_first && reduction.op == Operator::kScaledSum;
  const bool divides = finish && reduction.op == Operator::kSumThenDivide;
  if (sources.size() == 1 && !scales && !divides) {
    for (std::byte* const target : targets)
      if (target != sources[0]) std::memcpy(target, sources[0], count * size_of(reduction.type));
    return;
  }
  with_kernel_type(reduction.type,
                   [&]<class T>(T) { reduce<T>(reduction, sources, targets, count, scale_first, finish); });
}

}  // namespace plugfest::nccl::device
