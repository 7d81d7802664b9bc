// File names that NCCL tries for a name; error messages.
#include "harness/plugin/resolve.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fabric/system/testing.h"
#include "harness/plugin/inspect.h"

namespace plugfest::plugin {
namespace {

using Names = std::vector<std::string>;

TEST(FileNames, TryANameUnchangedAndThenAsSuffix) {
  EXPECT_EQ(file_names("mesh"), (Names{"mesh", "libnccl-net-mesh.so"}));
  EXPECT_EQ(file_names("libmesh"), (Names{"libmesh", "libnccl-net-libmesh.so"}));
  EXPECT_EQ(file_names("mesh.so"), (Names{"mesh.so", "libnccl-net-mesh.so.so"}));
}

TEST(FileNames, TryLibrariesAndPathsUnchanged) {
  EXPECT_EQ(file_names("libmesh.so"), Names{"libmesh.so"});
  EXPECT_EQ(file_names("./mesh"), Names{"./mesh"});
  EXPECT_EQ(file_names("/opt/mesh"), Names{"/opt/mesh"});
}

TEST(FileNames, NameTheMainProgramByPrefixesOfStaticPlugin) {
  EXPECT_TRUE(names_main_program("s"));
  EXPECT_TRUE(names_main_program("Static_Plugin"));
  EXPECT_FALSE(names_main_program("static_plugins"));
  EXPECT_FALSE(names_main_program("socket"));
  EXPECT_FALSE(names_main_program(""));
}

// Two folders in LD_LIBRARY_PATH.
class Search : public testing::Test {
 protected:
  Search() {
    std::filesystem::create_directories(folder / "first");
    std::filesystem::create_directories(folder / "second");
    ::setenv("LD_LIBRARY_PATH", ((folder / "first").string() + ":" + (folder / "second").string()).c_str(), 1);
  }
  ~Search() override { ::unsetenv("LD_LIBRARY_PATH"); }
  std::string library(const std::string& name) const {
    std::filesystem::copy_file(std::filesystem::canonical(zlib), folder / name);
    return folder / name;
  }
  static std::string refusal(const std::string& name) {
    return error_message([&] { resolve(name); });
  }
  const std::string zlib = find_library("libz.so.1");
  ScratchFolder folder;
};

TEST_F(Search, FindsSystemLibrariesInTheCache) { EXPECT_TRUE(zlib.starts_with("/")) << zlib; }

TEST_F(Search, TriesTheNameItselfBeforeTheSuffixForm) {
  const std::string suffix = library("first/libnccl-net-foo.so");
  EXPECT_EQ(resolve("foo"), suffix);
  const std::string itself = library("second/foo");
  EXPECT_EQ(resolve("foo"), itself);
}

TEST_F(Search, UsesTheFirstFolderWithTheFile) {
  const std::string second = library("second/libfoo.so");
  EXPECT_EQ(resolve("libfoo.so"), second);
  const std::string first = library("first/libfoo.so");
  EXPECT_EQ(resolve("libfoo.so"), first);
}

TEST_F(Search, SkipsLibrariesForOtherArchitectures) {
  const std::string other = library("first/libfoo.so");
  const std::string own = library("second/libfoo.so");
  std::fstream file(other, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);  // e_machine
  file.put(8);     // MIPS
  file.close();
  EXPECT_EQ(resolve("libfoo.so"), own);
}

TEST_F(Search, DoesNotSearchForAPath) {
  const std::string path = library("first/libfoo.so");
  EXPECT_EQ(resolve(path), path);
  EXPECT_EQ(refusal("./libfoo.so"), "./libfoo.so: no such file");
}

TEST_F(Search, NamesTheFilesAndFoldersInItsError) {
  EXPECT_EQ(refusal("foo"),
            "foo: no such library: neither it nor libnccl-net-foo.so is in LD_LIBRARY_PATH, the loader's cache or the "
            "system's folders");
  EXPECT_EQ(refusal("libfoo.so"),
            "libfoo.so: no such library: it is not in LD_LIBRARY_PATH, the loader's cache or the system's folders");
}

TEST_F(Search, RequiresAPathForAFileInThisFolder) {
  library("libhere.so");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  EXPECT_EQ(
      refusal("libhere.so"),
      "libhere.so: no such library: it is not in LD_LIBRARY_PATH, the loader's cache or the system's folders; for "
      "the file in this folder write ./libhere.so");
  std::filesystem::current_path(before);
}

TEST_F(Search, RefusesNamesWithoutALibrary) {
  EXPECT_EQ(refusal(""), "no plugin: the name is empty");
  EXPECT_EQ(refusal("None"), "None: NCCL loads no external plugin");
  EXPECT_EQ(
      refusal("stat"),
      "stat: NCCL looks for this in the main program (STATIC_PLUGIN), which has no plugin; for a file of that name "
      "write ./stat");
}

TEST(SanitizerEnvironment, NamesAFileThatIsNoLibrary) {
  EXPECT_EQ(error_message([] { sanitizer_environment("/nonexistent.so"); }), "/nonexistent.so: no such file");
}

}  // namespace
}  // namespace plugfest::plugin
