// Exported symbols, compared with the system's libibverbs and with the imports of installed programs and libraries.
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOurs = PLUGFEST_ROCE_FOLDER "/libibverbs.so.1";

std::string output_of(const std::string& command) { return run_shell(command).output; }

struct Symbols {
  std::set<std::string> defined;   // name@@NODE or name@NODE
  std::set<std::string> imported;  // name@NODE
};

// Returns the symbols with libibverbs versions that a file defines or imports. Format of readelf:
// "   155: 0000000000020281     1 OBJECT  GLOBAL DEFAULT   24 name@@NODE"
Symbols verbs_symbols(const fs::path& file) {
  Symbols symbols;
  std::istringstream rows(output_of("readelf -W --dyn-syms '" + file.string() + "' 2>/dev/null"));
  for (std::string row; std::getline(rows, row);) {
    std::istringstream fields(row);
    const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    if (words.size() < 8 || words[7].find("@") == std::string::npos || words[7].find("@IBVERBS_") == std::string::npos)
      continue;
    if (words[6] == "UND")
      symbols.imported.insert(words[7]);
    else
      symbols.defined.insert(words[7]);
  }
  return symbols;
}

bool provides(const Symbols& library, const std::string& imported) {
  std::string as_default = imported;
  as_default.insert(imported.find('@'), "@");
  return library.defined.contains(imported) || library.defined.contains(as_default);
}

std::string missing_for(const Symbols& program) {
  const Symbols ours = verbs_symbols(kOurs);
  std::string missing;
  for (const std::string& symbol : program.imported)
    if (!provides(ours, symbol)) missing += symbol + " ";
  return missing;
}

#define NEEDS_READELF() \
  if (output_of("readelf --version 2>/dev/null").empty()) GTEST_SKIP() << "needs readelf (binutils)"

TEST(Exports, ContainAllSymbolsOfTheSystemsLibrary) {
  NEEDS_READELF();
  if (!fs::exists(PLUGFEST_SYSTEM_IBVERBS)) GTEST_SKIP() << "needs the system's libibverbs";
  const Symbols system = verbs_symbols(PLUGFEST_SYSTEM_IBVERBS);
  const Symbols ours = verbs_symbols(kOurs);
  ASSERT_GT(system.defined.size(), 150u);
  std::vector<std::string> missing;
  std::set_difference(system.defined.begin(), system.defined.end(), ours.defined.begin(), ours.defined.end(),
                      std::back_inserter(missing));
  EXPECT_EQ(missing, std::vector<std::string>{});
}

TEST(Exports, ContainAllSymbolsThatInstalledDriversAndProgramsImport) {
  NEEDS_READELF();
  int checked = 0;
  for (const fs::path& folder : {fs::path(PLUGFEST_SYSTEM_IBVERBS).parent_path(), fs::path("/usr/bin")})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
      const bool is_driver = name.find(".so.") != std::string::npos &&
                             (begins("libmlx") || begins("libefa") || begins("libmana") || begins("librdmacm"));
      if (!is_driver && !begins("ibv_") && !begins("ib_")) continue;
      EXPECT_EQ(missing_for(verbs_symbols(entry.path())), "") << name;
      ++checked;
    }
  if (checked == 0) GTEST_SKIP() << "no driver library is installed, nor ibverbs-utils, nor perftest";
}

// Symbols that NCCL looks up, including optional ones.
TEST(Exports, AreFoundByVersionedLookup) {
  void* library = dlopen(kOurs, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* name :
       {"ibv_get_device_list", "ibv_query_port", "ibv_reg_mr", "ibv_create_qp", "ibv_event_type_str"})
    EXPECT_NE(dlvsym(library, name, "IBVERBS_1.1"), nullptr) << name;
  EXPECT_NE(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_set_ece", "IBVERBS_1.10"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"), nullptr);
  EXPECT_NE(dlvsym(library, "ibv_query_port_speed", "IBVERBS_1.16"), nullptr);
  EXPECT_EQ(dlvsym(library, "ibv_query_port_speed", "IBVERBS_1.1"), nullptr);
  dlclose(library);
}

// A program may close a plugin that has opened a device: the threads of the NIC still run.
TEST(Exports, StayLoadedAfterDlclose) {
  void* library = dlopen(kOurs, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  dlclose(library);
  EXPECT_NE(dlopen(kOurs, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// libibverbs of the newest rdma-core, from which newer plugins may import.
TEST(Exports, ContainTheNewestVersionNode) {
  void* library = dlopen(kOurs, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_NE(dlvsym(library, "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"), nullptr);
  dlclose(library);
}

TEST(Exports, AreAllVersioned) {
  NEEDS_READELF();
  std::istringstream rows(output_of(std::string("nm -D --defined-only ") + kOurs));
  for (std::string address, kind, name; rows >> address >> kind >> name;)
    EXPECT_TRUE(name.find("IBVERBS_") != std::string::npos) << name << " has no version";
}

// NCCL opens libibverbs.so first; without it, NCCL would load the system's library.
TEST(Exports, AreInFilesOfBothNames) { EXPECT_TRUE(fs::equivalent(PLUGFEST_ROCE_FOLDER "/libibverbs.so", kOurs)); }

}  // namespace
}  // namespace plugfest::roce::verbs
