// Exports functions with symbol versions, and converts exceptions to errno values.
#pragma once

#include <dlfcn.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string_view>
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

/// Whether the program, plugfest-rank, makes this call of its plugin fail. `call`: "ibv_reg_mr". Other names, such as
/// the functions of the data path, never fail.
inline bool made_to_fail(std::string_view call) noexcept {
  if (!call.starts_with("ibv_") && !call.starts_with("_ibv_")) return false;
  using Fails = bool (*)(const char*);
  static const auto fails = reinterpret_cast<Fails>(::dlsym(RTLD_DEFAULT, "plugfest_verbs_call_fails"));
  return fails != nullptr && fails(call.data());
}

/// Runs `body`, which returns 0 or an errno value. `call`: the function of libibverbs, by default the caller.
template <typename Body>
int status_of(Body body, const char* call = __builtin_FUNCTION()) noexcept {
  if (made_to_fail(call)) return EIO;
  try {
    return body();
  } catch (...) {
    return errno_of_current_exception();
  }
}

/// Runs `body`, which returns a number. On failure returns -1 and sets errno. Not noexcept, and catches no other
/// exception: a thread that waits for an event may be canceled, which unwinds its stack.
template <typename Body>
int value_or_errno(Body body, const char* call = __builtin_FUNCTION()) {
  if (made_to_fail(call)) {
    errno = EIO;
    return -1;
  }
  try {
    return body();
  } catch (const std::exception&) {
    errno = errno_of_current_exception();
    return -1;
  }
}

/// Runs `body`, which returns a pointer. On failure returns null and sets errno.
template <typename Body>
auto pointer_or_errno(Body body, const char* call = __builtin_FUNCTION()) noexcept -> decltype(body()) {
  if (made_to_fail(call)) {
    errno = ENOMEM;
    return nullptr;
  }
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
