// NCCL's loader and ours must take the same version from the same file.
#include "harness/plugin/nccl/nccl_loader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "harness/plugin/library.h"
#include "harness/plugin/nccl/nccl_builtin.h"
#include "test_paths.h"

namespace plugfest::plugin {
namespace {

/// `text`: result codes and log; or an error with `api` -1.
struct Outcome {
  int api = -1;
  std::string network;
  std::string text;
};

/// Runs load_with_nccl in a process of its own.
Outcome nccl_outcome(const std::string& plugin) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    std::string answer;
    try {
      const NcclLoad seen = load_with_nccl(plugin, ::memfd_create("log", MFD_CLOEXEC));
      answer = std::to_string(seen.api) + "\n" + seen.network + "\n" + std::to_string(static_cast<int>(seen.init)) +
               std::to_string(static_cast<int>(seen.finalize)) + "\n" + seen.log;
    } catch (const std::exception& error) {
      answer = std::string("-1\n\n") + error.what();
    }
    for (std::size_t done = 0; done < answer.size();) {
      const ssize_t wrote = ::write(ends[1], answer.data() + done, answer.size() - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string answer;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "NCCL ended the process: " << plugin;
  Outcome outcome;
  const std::size_t first = answer.find('\n');
  const std::size_t second = answer.find('\n', first + 1);
  if (second == std::string::npos) return outcome;
  outcome.api = std::stoi(answer.substr(0, first));
  outcome.network = answer.substr(first + 1, second - first - 1);
  outcome.text = answer.substr(second + 1);
  return outcome;
}

/// The newest version up to v11 that our loader takes; 0 for none.
int our_choice(const std::string& plugin) {
  try {
    const Library library(plugin);
    int newest = 0;
    for (const int api : library.apis())
      if (api <= kNewestNetOfNccl) newest = api;
    return newest;
  } catch (const LoadError&) {
    return 0;
  }
}

std::string mutant(const std::string& name) { return std::string(PLUGFEST_MUTANTS) + "/libnccl-net-" + name + ".so"; }

/// Skips a test on machines without NCCL 2.28.9.
#define NEED_NCCL()                                                                                  \
  if (find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 here: install NCCL or set NCCL_LIBRARY"; \
  if (const Outcome probe = nccl_outcome("none"); probe.api < 0) GTEST_SKIP() << probe.text

TEST(NcclLoader, takes_the_same_version_as_ours) {
  NEED_NCCL();
  const std::vector<std::pair<std::string, int>> expected = {
      {mutant("some_versions"), 11},     {mutant("null_name"), 0},
      {mutant("hidden_symbol"), 0},      {mutant("local_symbol"), 0},
      {mutant("static_symbol"), 0},      {mutant("cxx_name"), 0},
      {mutant("old_versions"), 0},       {mutant("short_name"), 0},
      {mutant("tuner_only"), 0},         {mutant("undefined_symbol"), 0},
      {mutant("missing_dependency"), 0}, {PLUGFEST_MESH, 11},
      {"/nowhere/libfoo.so", 0},         {"libz.so.1", 0}};
  for (const auto& [plugin, api] : expected) {
    const Outcome outcome = nccl_outcome(plugin);
    EXPECT_EQ(outcome.api, api) << plugin << "\n" << outcome.text;
    EXPECT_EQ(our_choice(plugin), api) << plugin;
  }
}

TEST(NcclLoader, falls_back_when_a_plugin_refuses_to_start) {
  NEED_NCCL();
  const Outcome outcome = nccl_outcome(mutant("some_versions"));
  EXPECT_NE(outcome.text.find("Failed to initialize NET plugin some_versions"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.network, "some_versions");
}

TEST(NcclLoader, a_plugin_may_change_its_name_in_init) {
  NEED_NCCL();
  ::setenv("TOY_FAULT", "rename in init", 1);
  const Outcome outcome = nccl_outcome(PLUGFEST_TOY_PLUGIN);
  ::unsetenv("TOY_FAULT");
  EXPECT_EQ(outcome.api, 11);
  EXPECT_EQ(outcome.network, "Renamed") << outcome.text;
  EXPECT_FALSE(is_own_network(outcome.network)) << "NCCL did not fall back";
}

TEST(NcclLoader, resolves_names_as_ours_does) {
  NEED_NCCL();
  ::setenv("LD_LIBRARY_PATH", PLUGFEST_MUTANTS, 1);
  // The dynamic loader reads LD_LIBRARY_PATH when a process starts, so the test runs again in a new process.
  if (std::getenv("PLUGFEST_REEXECUTED") == nullptr) {
    ::setenv("PLUGFEST_REEXECUTED", "1", 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe", "nccl_loader_test", "--gtest_filter=NcclLoader.resolves_names_as_ours_does", nullptr);
      ::_exit(127);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return;
  }
  for (const char* name : {"some_versions", "libnccl-net-some_versions.so"}) {
    EXPECT_EQ(nccl_outcome(name).api, 11) << name;
    EXPECT_EQ(our_choice(name), 11) << name;
  }
  for (const char* name : {"none", "libsome_versions.so", "nccl-net-some_versions"}) {
    EXPECT_EQ(nccl_outcome(name).api, 0) << name;
    EXPECT_EQ(our_choice(name), 0) << name;
  }
}

TEST(NcclLoader, other_releases_are_refused) {
  ::setenv("NCCL_LIBRARY", "/proc/self/exe", 1);
  const Outcome outcome = nccl_outcome("mesh");
  ::unsetenv("NCCL_LIBRARY");
  EXPECT_EQ(outcome.api, -1);
  EXPECT_EQ(outcome.text, "loader nccl: /proc/self/exe: a program, not a shared library");
}

}  // namespace
}  // namespace plugfest::plugin
