// The edge of the C ABI: symbol versions, and exceptions as errno values.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

/// Exports `target` as `name` with `version`: "@NODE" (only for programs linked against NODE) or "@@NODE" (the default
/// when linking), by assembler directives that GCC and Clang accept on all architectures. `alias`: a unique symbol that
/// the assembler needs for each version. NODE must be in libibverbs.map.
#define PLUGFEST_SYMBOL_VERSION(target, alias, name, version) \
  __asm__(".globl " #alias "\n.set " #alias ", " #target "\n.symver " #alias ", " #name version "\n")

namespace plugfest::roce::verbs {

/// The errno value for the current exception: ENOMEM for bad_alloc, the code of a system_error, otherwise EIO.
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

/// Runs `body`, which returns 0 or an errno value.
template <typename Body>
int status_of(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return errno_of_current_exception();
  }
}

/// Runs `body`, which returns a number. On failure returns -1 and sets errno.
template <typename Body>
int value_or_errno(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    errno = errno_of_current_exception();
    return -1;
  }
}

/// Runs `body`, which returns a pointer. On failure returns null and sets errno.
template <typename Body>
auto pointer_or_errno(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    errno = errno_of_current_exception();
    return nullptr;
  }
}

/// Throws `error` as std::system_error; the functions above convert it back.
[[noreturn]] inline void fail(int error) { throw std::system_error(error, std::generic_category()); }

}  // namespace plugfest::roce::verbs
