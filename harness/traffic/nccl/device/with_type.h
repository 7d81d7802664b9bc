// From NCCL's data types to types of C++.
#pragma once

#include <cstdint>

#include "harness/traffic/nccl/device/floats.h"
#include "harness/traffic/nccl/device/reduce.h"

namespace plugfest::nccl::device {

/// Calls `visit` with a value of the type.
template <class Visit>
void with_type(Type type, const Visit& visit) {
  switch (type) {
    case Type::kInt8:
      return visit(std::int8_t{});
    case Type::kUint8:
      return visit(std::uint8_t{});
    case Type::kInt32:
      return visit(std::int32_t{});
    case Type::kUint32:
      return visit(std::uint32_t{});
    case Type::kInt64:
      return visit(std::int64_t{});
    case Type::kUint64:
      return visit(std::uint64_t{});
    case Type::kHalf:
      return visit(Half{});
    case Type::kFloat:
      return visit(float{});
    case Type::kDouble:
      return visit(double{});
    case Type::kBfloat16:
      return visit(Bfloat16{});
    case Type::kE4m3:
      return visit(E4m3{});
    case Type::kE5m2:
      return visit(E5m2{});
  }
}

}  // namespace plugfest::nccl::device
