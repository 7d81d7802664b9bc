// Runs the model with 50 seeds, with NIGHTLY=1 with 1000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "fabric/roce/model/exchange.h"

namespace plugfest::roce::model {
namespace {

// ctest runs the parts in parallel.
constexpr unsigned kParts = 10;
constexpr unsigned kSeedsPerPart = 100;
constexpr unsigned kDefaultSeedsPerPart = 5;

const char* from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

void run_seed(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + "; to repeat: PLUGFEST_MODEL_SEED=" + std::to_string(seed) +
               " roce_model_test --gtest_filter='*Part/0'");
  Exchange exchange(seed);
  exchange.run();
}

class Model : public testing::TestWithParam<unsigned> {};

TEST_P(Model, AllCompletionsAndBytesAreCorrect) {
  const unsigned first = GetParam() * kSeedsPerPart;
  if (const char* const one = from_environment("PLUGFEST_MODEL_SEED")) return run_seed(std::stoull(one));
  unsigned count = kSeedsPerPart;
  unsigned offset = 0;
  if (from_environment("NIGHTLY") == nullptr) {
    const char* const drawn_from = from_environment("SEED");
    std::mt19937_64 random(drawn_from == nullptr ? std::random_device()() : std::stoull(drawn_from));
    count = kDefaultSeedsPerPart;
    offset = static_cast<unsigned>(draw(random, 0, kSeedsPerPart - count));
  }
  std::cout << "seeds " << first + offset << " to " << first + offset + count - 1 << '\n';
  for (unsigned i = 0; i < count && !HasFailure(); ++i) run_seed(first + offset + i);
}

INSTANTIATE_TEST_SUITE_P(Part, Model, testing::Range(0u, kParts));

}  // namespace
}  // namespace plugfest::roce::model
