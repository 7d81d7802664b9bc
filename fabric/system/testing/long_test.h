// Tests, or parts of tests, that only `scripts/test --all` runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace plugfest {

/// Whether long tests run: scripts/test --all sets PLUGFEST_TEST_ALL.
inline bool runs_long_tests() { return std::getenv("PLUGFEST_TEST_ALL") != nullptr; }

}  // namespace plugfest

/// In a test: skips it unless long tests run.
#define PLUGFEST_LONG_TEST() \
  if (!plugfest::runs_long_tests()) GTEST_SKIP() << "only with scripts/test --all"
