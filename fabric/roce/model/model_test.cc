// Runs the model with 50 seeds, and with PLUGFEST_TEST_ALL with 1000.
#include <iostream>

#include "fabric/roce/model/exchange.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::model {
namespace {

// ctest runs the parts in parallel.
constexpr unsigned kParts = 10;
constexpr unsigned kSeedsPerPart = 100;
constexpr unsigned kDefaultSeedsPerPart = 5;

void run_seed(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + "; to repeat: PLUGFEST_MODEL_SEED=" + std::to_string(seed) +
               " roce_model_test --gtest_filter='*Part/0'");
  Exchange exchange(seed);
  exchange.run();
}

class Model : public testing::TestWithParam<unsigned> {};

TEST_P(Model, AllCompletionsAndBytesAreCorrect) {
  const unsigned first = GetParam() * kSeedsPerPart;
  if (const char* const seed = std::getenv("PLUGFEST_MODEL_SEED")) return run_seed(std::stoull(seed));
  const unsigned count = runs_long_tests() ? kSeedsPerPart : kDefaultSeedsPerPart;
  std::cout << "seeds " << first << " to " << first + count - 1 << '\n';
  for (unsigned i = 0; i < count && !HasFailure(); ++i) run_seed(first + i);
}

INSTANTIATE_TEST_SUITE_P(Part, Model, testing::Range(0u, kParts));

}  // namespace
}  // namespace plugfest::roce::model
