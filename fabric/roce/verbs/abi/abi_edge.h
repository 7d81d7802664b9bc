// The edge between C++ inside and C programs outside: no exception passes it, each becomes the errno that verbs would
// give.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

namespace plugfest::roce::verbs {

/// The errno that stands for the exception being handled: ENOMEM, a system error's own number, else EIO.
inline int errno_of_current_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& error) {
    return error.code().value();
  } catch (...) {
    return EIO;
  }
}

/// For verbs that return 0 or an errno value.
template <typename Body>
int status_of(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return errno_of_current_exception();
  }
}

/// For verbs that return a number, and -1 with errno on failure.
template <typename Body>
int value_or_errno(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    errno = errno_of_current_exception();
    return -1;
  }
}

/// For verbs that return a pointer, and null with errno on failure.
template <typename Body>
auto pointer_or_errno(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    errno = errno_of_current_exception();
    return nullptr;
  }
}

/// A verb's failure as its errno, thrown inside and turned back at the edge.
[[noreturn]] inline void fail(int error) { throw std::system_error(error, std::generic_category()); }

}  // namespace plugfest::roce::verbs
