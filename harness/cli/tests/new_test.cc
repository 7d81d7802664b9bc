// plugfest new. scripts/install_test.sh builds and tests a new plugin.

#include <fcntl.h>
#include <sys/stat.h>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST_F(RunTest, NewCopiesTheExampleUnderTheNameOfTheFolder) {
  ASSERT_EQ(plugfest("new 'a folder/../nccl-net-foo-2/'"), 0) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("cmake -S nccl-net-foo-2 -B nccl-net-foo-2/build -Dplugfest_DIR="),
                              HasSubstr("run --plugin nccl-net-foo-2/build/libnccl-net-foo-2.so --watch\n")));
  const fs::path folder = folder_ / "nccl-net-foo-2";
  EXPECT_THAT(names_in(folder),
              UnorderedElementsAre("CMakeLists.txt", "README.md", "device.cc", "device.h", "handshake.cc",
                                   "handshake.h", "plugin.cc", "stream.cc", "stream.h"));
  EXPECT_THAT(content_of(folder / "plugin.cc"),
              AllOf(HasSubstr("ncclNetPlugin_v8 = {\"foo-2\","), HasSubstr("NET/foo-2: %s"),
                    HasSubstr("using net_foo_2::Handle;"), HasSubstr("delete static_cast<Listener*>(comm);")));
  EXPECT_THAT(content_of(folder / "CMakeLists.txt"),
              AllOf(HasSubstr("add_library(nccl-net-foo-2 MODULE"), HasSubstr("\nfind_package(plugfest REQUIRED)\n"),
                    HasSubstr("plugfest_add_conformance(nccl-net-foo-2 STRICT)\n")));
  for (const std::string& name : names_in(folder)) {
    EXPECT_THAT(content_of(folder / name),
                AllOf(Not(HasSubstr("xample")), Not(HasSubstr("EXAMPLE")), Not(HasSubstr("WITH_BUG"))))
        << name;
  }
  EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("nccl-net-foo-2", "output"));
}

TEST_F(RunTest, NewRefusesFoldersThatItCannotCreate) {
  const std::string folder = folder_.path();
  fs::create_directory(folder_ / "here");
  EXPECT_EQ(error_of("new " + folder + "/here"), "plugfest: " + folder + "/here: it exists: name a new folder\n");
  EXPECT_THAT(names_in(folder_ / "here"), IsEmpty());
  fs::create_symlink("nowhere", folder_ / "link");
  EXPECT_EQ(error_of("new " + folder + "/link"), "plugfest: " + folder + "/link: it exists: name a new folder\n");
  EXPECT_EQ(error_of("new " + folder + "/absent/foo"),
            "plugfest: " + folder + "/absent/foo: cannot create: No such file or directory\n");
  EXPECT_EQ(error_of("new /proc/foo"), "plugfest: /proc/foo: cannot create: No such file or directory\n");
  for (const char* const name : {"'my plugin'", "2foo", "foo.so", "..", "/", "nccl-net-", "'foo;'"}) {
    EXPECT_THAT(error_of(std::string("new ") + name),
                HasSubstr("\": expected a name of at most 64 letters, digits, - and _ that starts with a letter, as in "
                          "my-plugin\n"));
  }
  EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("here", "link"));
}

TEST_F(RunTest, NewNamesThePackageThatHasTheExample) {
  fs::create_directory(folder_ / "bin");
  fs::copy_file(PLUGFEST_PROGRAM, folder_ / "bin/plugfest");
  const std::string skeleton = fs::canonical(folder_.path()).string() + "/lib/skeleton";
  EXPECT_EQ(output_of(run_shell("exec bin/plugfest new foo", [&] { fs::current_path(folder_.path()); }), 2),
            "plugfest: " + skeleton + ": no such folder: install the package plugfest-dev\n");
}

TEST_F(RunTest, NewLeavesNothingOnADiskThatIsFull) {
  EXPECT_EQ(output_of(run_shell("ulimit -f 1; exec " PLUGFEST_PROGRAM " new foo",
                                [&] { std::filesystem::current_path(folder_.path()); }),
                      2),
            "plugfest: foo: cannot create: File too large: see ulimit -f\n");
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

}  // namespace
}  // namespace plugfest::cli
