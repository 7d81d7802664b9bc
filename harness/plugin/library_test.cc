// Error messages for plugin authors; the choice of the version.
#include "harness/plugin/library.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "fabric/system/testing.h"
#include "harness/plugin/releases.h"
#include "harness/plugin/resolve.h"
#include "test_paths.h"

namespace plugfest::plugin {
namespace {

namespace fs = std::filesystem;

// The error message of loading, without the path; "loaded" when loading succeeds.
std::string refusal(const std::string& path, int api = 0) {
  try {
    const Library library(path, api);
    return "loaded";
  } catch (const LoadError& error) {
    const std::string line = error.what();
    EXPECT_TRUE(line.starts_with(path + ": ")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    return line.substr(std::min(line.size(), path.size() + 2));
  }
}

std::string mutant(const std::string& name) { return std::string(PLUGFEST_MUTANTS) + "/libnccl-net-" + name + ".so"; }

TEST(LibraryErrors, ExplainWhyASymbolIsNotExported) {
  const std::string unexported =
      "no net plugin symbol: ncclNetPlugin_v12 is hidden, static, or made local by a version script: give it "
      "__attribute__((visibility(\"default\")))";
  EXPECT_EQ(refusal(mutant("hidden_symbol")), unexported);
  EXPECT_EQ(refusal(mutant("local_symbol")), unexported);
  EXPECT_EQ(refusal(mutant("static_symbol")),
            "no net plugin symbol: ncclNetPlugin_v12 has the C++ name _ZL17ncclNetPlugin_v12: declare it extern "
            "\"C\", neither static nor const nor in a namespace");
  EXPECT_EQ(refusal(mutant("cxx_name")),
            "no net plugin symbol: ncclNetPlugin_v12 has the C++ name _ZN6vendor17ncclNetPlugin_v12E: declare it "
            "extern \"C\", neither static nor const nor in a namespace");
}

TEST(LibraryErrors, NameWhatIsExportedInstead) {
  EXPECT_EQ(refusal(mutant("function_symbol")),
            "no net plugin symbol: ncclNetPlugin_v12 is a function; NCCL looks for a structure of that name");
  EXPECT_EQ(refusal(mutant("short_name")),
            "no net plugin symbol: it exports ncclNet_v8, and NCCL looks for ncclNetPlugin_v8");
  EXPECT_EQ(refusal(mutant("old_versions")),
            "exports net v4, v5 only, which NCCL 2.26 and later refuse: build it for v6 or later");
  EXPECT_EQ(
      refusal(mutant("tuner_only")),
      "no net plugin symbol (ncclNetPlugin_v6 to _v12): it exports ncclTunerPlugin_v4, which is not a net plugin");
}

TEST(LibraryErrors, NameTheMissingSymbolOrLibrary) {
  EXPECT_EQ(refusal(mutant("undefined_symbol")),
            "undefined symbol ncclDebugLogOfCore: link the library that defines it; NCCL loads plugins with RTLD_NOW "
            "and offers them no symbols");
  EXPECT_THAT(
      refusal(mutant("undefined_symbol_of_cuda")),
      ::testing::EndsWith("; if your programs load CUDA's runtime first, add --env LD_PRELOAD=libcudart.so.12"));
  EXPECT_EQ(refusal(mutant("missing_dependency")),
            "needs libplugfest-absent.so, which is not found: install it or add its folder to LD_LIBRARY_PATH");
}

TEST(Library, LoadsPluginsWithANullNameOrAWrongSize) {
  Library null_name(mutant("null_name"));
  EXPECT_EQ(null_name.net().name(), nullptr);
  const Inspection wrong_size = inspect(mutant("wrong_size"));
  ASSERT_NE(wrong_size.exported("ncclNetPlugin_v12"), nullptr);
  EXPECT_EQ(wrong_size.exported("ncclNetPlugin_v12")->size, api_layout(10).table_size);
}

TEST(LibraryVersions, ChooseTheNewest) {
  Library library(mutant("some_versions"));
  EXPECT_EQ(library.net().api(), 11);
  EXPECT_EQ(library.apis(), (std::vector<int>{8, 11}));
  EXPECT_EQ(library.path(), fs::canonical(mutant("some_versions")));
  EXPECT_FALSE(library.built_in());
  EXPECT_STREQ(library.net().name(), "some_versions");
}

TEST(LibraryVersions, ReturnAnOlderOneOnRequest) {
  Library library(mutant("some_versions"), 8);
  EXPECT_EQ(library.net().api(), 8);
}

TEST(LibraryVersions, RefuseAMissingOneWithAList) {
  EXPECT_EQ(refusal(mutant("some_versions"), 12), "no net v12: it exports v8, v11");
  EXPECT_EQ(refusal(mutant("some_versions"), 9),
            "no net v9: ncclNetPlugin_v9 is hidden, static, or made local by a version script: give it "
            "__attribute__((visibility(\"default\"))); it exports v8, v11");
}

TEST(Releases, TakeTheNewestVersionThatTheyLookUp) {
  const Inspection library = inspect(mutant("some_versions"));
  const std::vector<int> net = library.exported_versions(InterfaceKind::kNet);
  EXPECT_EQ(net, (std::vector<int>{8, 11}));
  const auto chosen = [&](const char* release) { return find_release(release)->choose(InterfaceKind::kNet, net); };
  EXPECT_EQ(chosen("2.19.4"), 0);
  EXPECT_EQ(chosen("2.27.7"), 8);
  EXPECT_EQ(chosen("nccl-2.30.7"), 11);
  const std::vector<int> gin = library.exported_versions(InterfaceKind::kGin);
  EXPECT_EQ(gin, std::vector<int>{11});
  EXPECT_EQ(find_release("2.28.9")->choose(InterfaceKind::kGin, gin), 11);
  EXPECT_EQ(find_release("2.30.7")->choose(InterfaceKind::kGin, gin), 0);
}

TEST(Releases, AreSortedAndNamedIfTheyAreNearAnUnknownOne) {
  EXPECT_EQ(find_release("2.30.6"), nullptr);
  EXPECT_EQ(find_release("nccl-"), nullptr);
  EXPECT_EQ(nearest_releases("nccl-2.30.6"), "2.30.3, 2.30.4 and 2.30.7");
  EXPECT_EQ(nearest_releases("2.26.4"), "2.26.2, 2.26.3 and 2.26.5");
  EXPECT_EQ(nearest_releases("2.99"), "2.30.3, 2.30.4 and 2.30.7");
  EXPECT_EQ(nearest_releases("2.18.6"), "2.19.1, 2.19.3 and 2.19.4");
  EXPECT_EQ(nearest_releases("no number"), "2.19.1, 2.19.3 and 2.19.4");
}

class InvalidFile : public testing::Test {
 protected:
  InvalidFile() {
    std::ifstream valid(mutant("some_versions"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(valid), {});
  }
  std::string write(const std::string& content) const {
    const std::string path = folder / "libfoo.so";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  // A valid library with one byte changed.
  std::string with(std::size_t offset, char value) const {
    std::string changed = bytes;
    changed[offset] = value;
    return write(changed);
  }
  ScratchFolder folder;
  std::string bytes;
};

TEST_F(InvalidFile, IsRefusedIfItIsMissing) { EXPECT_EQ(refusal(folder / "libfoo.so"), "no such file"); }

TEST_F(InvalidFile, IsRefusedIfItIsAFolderAFifoOrEmpty) {
  EXPECT_EQ(refusal(folder.path()), "a folder, not a shared library");
  const std::string fifo = folder / "fifo.so";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(refusal(fifo), "not a regular file");
  EXPECT_EQ(refusal(write("")), "an empty file");
}

TEST_F(InvalidFile, IsRefusedIfItIsNotElf) {
  EXPECT_EQ(refusal(write("hello world\nmore")), "not a shared library: a text that begins with \"hello world\"");
  EXPECT_EQ(refusal(write(std::string("\x89PNG\r\n\x1a\n\0\0", 10))), "not a shared library: not an ELF file");
}

TEST_F(InvalidFile, IsRefusedIfItIsAnotherFileOfALinker) {
  EXPECT_EQ(refusal(write("!<arch>\nfoo.o/")),
            "a static library (.a), not a shared one: link its objects with -shared");
  EXPECT_EQ(refusal(with(16, 1)), "an object file (.o), not a shared library: link it with -shared");
  EXPECT_EQ(refusal(with(16, 2)), "a program, not a shared library");
  EXPECT_EQ(refusal(with(16, 4)), "not a shared library: an ELF file of another type");
  EXPECT_EQ(refusal("/proc/self/exe"), "a program, not a shared library");
}

TEST_F(InvalidFile, IsRefusedIfItIsForAnotherMachine) {
  EXPECT_EQ(refusal(with(4, 1)), "a 32-bit library, and NCCL is a 64-bit one");
  EXPECT_EQ(refusal(with(5, 2)), "built for a big-endian machine");
#if defined(__x86_64__)
  EXPECT_EQ(refusal(with(18, char(183))), "built for aarch64, and this machine is x86-64");
#endif
}

TEST_F(InvalidFile, IsRefusedIfItIsTruncated) {
  EXPECT_EQ(refusal(write(bytes.substr(0, 40))), "truncated: an ELF file of 40 bytes");
  EXPECT_EQ(refusal(write(bytes.substr(0, 5000))),
            "truncated: it has 5000 bytes, and its segments need more: copy or build it again");
  const std::string end = std::to_string(bytes.size() - 1);
  EXPECT_EQ(refusal(write(bytes.substr(0, bytes.size() - 1))),
            "truncated or damaged: it has " + end + " bytes and refers to more: copy or build it again");
}

TEST_F(InvalidFile, IsRefusedIfItIsNoPlugin) {
  const std::string zlib = find_library("libz.so.1");
  ASSERT_FALSE(zlib.empty());
  EXPECT_EQ(refusal(zlib), "no net plugin symbol (ncclNetPlugin_v6 to _v12): not an NCCL net plugin");
}

// True when the file is read, false when it is refused.
bool inspects(const std::string& path) {
  try {
    const Inspection inspection = inspect(path);
    (void)inspection.net_apis();
    return true;
  } catch (const LoadError&) {
    return false;
  }
}

TEST_F(InvalidFile, IsRefusedAtEveryTruncation) {
  const std::string path = write(bytes);
  ASSERT_TRUE(inspects(path));
  for (std::size_t size = bytes.size(); size-- > 0; size -= std::min<std::size_t>(size, 13)) {
    fs::resize_file(path, size);
    ASSERT_FALSE(inspects(path)) << size << " bytes";
  }
}

// A copy of a valid library whose bytes are overwritten and restored in place.
class DamagedFile : public InvalidFile {
 protected:
  void write_at(std::size_t offset, std::string_view content) {
    file.seekp(static_cast<std::streamoff>(offset)) << content;
  }
  void inspect_with(const std::vector<std::pair<std::size_t, std::string>>& damage) {
    for (const auto& [offset, content] : damage) write_at(offset, content);
    file.flush();
    inspects(path);
    for (const auto& [offset, content] : damage)
      write_at(offset, std::string_view(bytes).substr(offset, content.size()));
  }
  const std::string path = write(bytes);
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
};

TEST_F(DamagedFile, CrashesNothingWithRandomBytes) {
  std::mt19937 random(20);
  // Half of the changes hit the headers.
  std::uniform_int_distribution<std::size_t> anywhere(0, bytes.size() - 1), header(0, 1500);
  std::uniform_int_distribution<int> value(0, 255), coin(0, 1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::pair<std::size_t, std::string>> damage;
    for (int i = 0; i < 4; ++i)
      damage.emplace_back(coin(random) ? header(random) : anywhere(random),
                          std::string(1, static_cast<char>(value(random))));
    inspect_with(damage);
  }
}

TEST_F(DamagedFile, CrashesNothingWithHugeNumbers) {
  for (std::size_t offset = 0; offset < 1500; ++offset)
    for (const char fill : {'\xff', '\x7f'}) inspect_with({{offset, std::string(8, fill)}});
}

}  // namespace
}  // namespace plugfest::plugin
