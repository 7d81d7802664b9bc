#include "harness/rank/exceptions.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <typeinfo>

#include "harness/plugin/elf_file.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

using CurrentException = std::exception_ptr (*)() noexcept;
using SetTerminate = std::terminate_handler (*)(std::terminate_handler) noexcept;

std::array<char, sizeof(wire::Crash::exception)> text{};
std::atomic<bool> described_once{false};
// std::current_exception of the plugin's runtime: the rank has a runtime of its own.
std::atomic<CurrentException> plugins_current_exception{nullptr};

// "std::runtime_error: no memory", or only the type of an exception that is not derived from std::exception.
std::string describe(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& exception) {
    return fmt::format("{}: {}", plugin::demangled(typeid(exception).name()), exception.what());
  } catch (...) {
    const std::type_info* const type = ::abi::__cxa_current_exception_type();
    return type == nullptr ? "an exception of unknown type" : plugin::demangled(type->name());
  }
}

[[noreturn]] void describe_and_abort() {
  // The runtime of the function that ends the search for a handler has caught the exception.
  std::exception_ptr thrown = std::current_exception();
  const CurrentException theirs = plugins_current_exception;
  if (!thrown && theirs != nullptr) thrown = theirs();
  if (thrown && !described_once.exchange(true)) {
    const std::string description = describe(thrown);
    std::fprintf(stderr, "uncaught exception %s\n", description.c_str());
    description.copy(text.data(), text.size() - 1);
  }
  std::abort();
}

}  // namespace

void describe_exceptions_of(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  const auto function = [&](const char* name) { return dlsym(library, name); };
  if (const auto set = reinterpret_cast<SetTerminate>(function("_ZSt13set_terminatePFvvE"))) set(describe_and_abort);
  plugins_current_exception = reinterpret_cast<CurrentException>(function("_ZSt17current_exceptionv"));
  dlclose(library);
}

const char* uncaught_exception() { return text.data(); }

}  // namespace plugfest::rank
