// The main function of GoogleTest programs that need namespaces: each program runs in its own sandbox.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>

#include "fabric/netns/sandbox.h"

int main(int argc, char** argv) {
  // The build lists the tests even on machines that forbid namespaces.
  bool only_lists = false;
  for (int i = 1; i < argc; ++i) only_lists |= std::string_view(argv[i]) == "--gtest_list_tests";
  try {
    if (!only_lists) {
      if (const std::optional<int> exit_code = plugfest::netns::enter_sandbox()) return *exit_code;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s\n", error.what());
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
