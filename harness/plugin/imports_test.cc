// A function that this program imports is replaced.
#include "harness/plugin/imports.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace plugfest::plugin {
namespace {

long replaced_host_id() { return 4711; }

TEST(RedirectImport, ReplacesAFunctionForTheLibrary) {
  void* const program = ::dlopen(nullptr, RTLD_NOW);
  const long real = ::gethostid();
  ASSERT_TRUE(redirect_import(program, "gethostid", reinterpret_cast<const void*>(&replaced_host_id)));
  EXPECT_EQ(::gethostid(), 4711);
  const void* const original = ::dlsym(RTLD_DEFAULT, "gethostid");
  ASSERT_TRUE(redirect_import(program, "gethostid", original));
  EXPECT_EQ(::gethostid(), real);
}

TEST(RedirectImport, SaysThatTheLibraryDoesNotImportTheFunction) {
  errno = 0;
  EXPECT_FALSE(redirect_import(::dlopen(nullptr, RTLD_NOW), "no_such_function", nullptr));
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace plugfest::plugin
