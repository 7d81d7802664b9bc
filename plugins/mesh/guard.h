// The edge to NCCL: exceptions become result codes and log lines.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "plugins/mesh/log.h"

namespace mesh {

/// Runs `body`, which returns nothing or a Result, and catches its exceptions.
template <typename Body>
Result guarded(const Body& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return Result::kSuccess;
    } else {
      return body();
    }
  } catch (const Failure& failure) {
    MESH_WARN("%s", failure.what());
    return failure.code();
  } catch (const std::bad_alloc&) {
    MESH_WARN("out of memory");
    return Result::kSystemError;
  } catch (const std::exception& error) {
    MESH_WARN("unexpected exception: %s; report this defect of the mesh plugin", error.what());
    return Result::kInternalError;
  }
}

/// Errors: Failure when `pointer` is null.
inline void require(const void* pointer, const char* what) {
  if (pointer == nullptr) throw Failure(Result::kInvalidArgument, std::string(what) + " is NULL");
}

}  // namespace mesh
