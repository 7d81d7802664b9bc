#include "harness/nccl/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace plugfest::nccl {
namespace {

using device::Bfloat16, device::E4m3, device::Half, device::with_type;

// splitmix64.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

template <typename T>
double as_number(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

// Units in the last place of 1.0.
template <typename T>
constexpr double kPrecision = std::is_same_v<T, double>     ? 0x1p-52
                              : std::is_same_v<T, float>    ? 0x1p-23
                              : std::is_same_v<T, Half>     ? 0x1p-10
                              : std::is_same_v<T, Bfloat16> ? 0x1p-7
                              : std::is_same_v<T, E4m3>     ? 0x1p-3
                                                            : 0x1p-2;

template <typename T>
class Elements {
 public:
  Elements(std::uint64_t seed, RedOp op, int ranks) : seed_(seed), op_(op), ranks_(ranks) {}

  T input(int rank, std::size_t index) const {
    const std::uint64_t bits = mix(seed_ + index * 64 + static_cast<std::uint64_t>(rank));
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(bits);
    } else {
      // At most three ranks have a number other than the operator's neutral one where the format or the operator is
      // narrow.
      const bool narrow = sizeof(T) == 1 || op_ == RedOp::kProduct;
      if (narrow && (static_cast<std::uint64_t>(rank) + index) % static_cast<std::uint64_t>(ranks_) >= 3)
        return T(op_ == RedOp::kProduct ? 1.0f : 0.0f);
      const unsigned range = op_ == RedOp::kProduct ? 2 : sizeof(T) == 1 ? 2 : sizeof(T) == 2 ? 8 : 1024;
      const auto value = static_cast<float>(bits % range + (op_ == RedOp::kProduct ? 1 : 0));
      return T(op_ != RedOp::kProduct && (bits >> 32 & 1) != 0 ? -value : value);
    }
  }

  // Whether `found` is the reduction of the elements of all ranks, which `wanted` becomes.
  bool right_sum(T found, std::size_t index, double& wanted) const {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      T result = input(0, index);
      for (int rank = 1; rank < ranks_; ++rank) {
        const T other = input(rank, index);
        // Wraps around like the hardware.
        const auto a = static_cast<std::uint64_t>(static_cast<Unsigned>(result));
        const auto b = static_cast<std::uint64_t>(static_cast<Unsigned>(other));
        switch (op_) {
          case RedOp::kProduct:
            result = static_cast<T>(a * b);
            break;
          case RedOp::kMax:
            result = std::max(result, other);
            break;
          case RedOp::kMin:
            result = std::min(result, other);
            break;
          default:
            result = static_cast<T>(a + b);
        }
      }
      if (op_ == RedOp::kAverage) result = static_cast<T>(result / static_cast<T>(ranks_));
      wanted = as_number(result);
      return found == result;
    } else {
      double result = as_number(input(0, index)), magnitude = std::fabs(result);
      for (int rank = 1; rank < ranks_; ++rank) {
        const double other = as_number(input(rank, index));
        magnitude += std::fabs(other);
        result = op_ == RedOp::kProduct ? result * other
                 : op_ == RedOp::kMax   ? std::max(result, other)
                 : op_ == RedOp::kMin   ? std::min(result, other)
                                        : result + other;
      }
      wanted = op_ == RedOp::kAverage ? result / ranks_ : result;
      if (op_ != RedOp::kAverage) return as_number(found) == wanted;
      // Each factor, product and sum is rounded.
      const double allowed = magnitude / ranks_ * kPrecision<T> * (ranks_ + 1);
      return std::fabs(as_number(found) - wanted) <= allowed;
    }
  }

 private:
  std::uint64_t seed_;
  RedOp op_;
  int ranks_;
};

void note(Differences& differences, std::size_t index, double found, double wanted) {
  if (differences.count++ == 0) differences.first = fmt::format("element {} is {}, not {}", index, found, wanted);
}

template <typename T>
bool same(T a, T b) {
  // Compares bits, even of NaN. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace

void Pattern::fill(void* buffer, int rank, std::size_t first, std::size_t count) const {
  with_type(type_, [&]<class T>(T) {
    const Elements<T> elements(seed_, op_, ranks_);
    for (std::size_t i = 0; i < count; ++i) static_cast<T*>(buffer)[i] = elements.input(rank, first + i);
  });
}

Differences Pattern::compare(const void* buffer, int rank, std::size_t first, std::size_t count) const {
  Differences differences;
  with_type(type_, [&]<class T>(T) {
    const Elements<T> elements(seed_, op_, ranks_);
    for (std::size_t i = 0; i < count; ++i) {
      const T found = static_cast<const T*>(buffer)[i], wanted = elements.input(rank, first + i);
      if (!same(found, wanted)) note(differences, i, as_number(found), as_number(wanted));
    }
  });
  return differences;
}

Differences Pattern::compare_sum(const void* buffer, std::size_t first, std::size_t count) const {
  Differences differences;
  with_type(type_, [&]<class T>(T) {
    const Elements<T> elements(seed_, op_, ranks_);
    for (std::size_t i = 0; i < count; ++i) {
      const T found = static_cast<const T*>(buffer)[i];
      double wanted = 0;
      if (!elements.right_sum(found, first + i, wanted)) note(differences, i, as_number(found), wanted);
    }
  });
  return differences;
}

}  // namespace plugfest::nccl
